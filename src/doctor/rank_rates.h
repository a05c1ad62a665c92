// `shoal doctor --ranks`: what was measured of each rank, and which of them stands out. Pure; rank_checks.h measures.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::doctor {

// A second: products in flop, the others in bytes. 0: not measured.
struct RankRates {
  double compute = 0;
  double memory = 0;  // copies, read and write counted
  double link = 0;    // both ways between two ranks, with the best of its partners
  double disk_write = 0, disk_read = 0;
};

struct RateKind {
  std::string_view name;
  double RankRates::*rate;
  std::string_view unit;  // of a second
};
inline constexpr std::array<RateKind, 5> kRateKinds = {{{"compute", &RankRates::compute, "flop"},
                                                        {"memory", &RankRates::memory, "B"},
                                                        {"link", &RankRates::link, "B"},
                                                        {"disk write", &RankRates::disk_write, "B"},
                                                        {"disk read", &RankRates::disk_read, "B"}}};

// Below this share of the median of the other ranks a rank stands out.
inline constexpr double kOddShare = 0.75;

struct OddRank {
  int rank = 0;
  const RateKind* kind = nullptr;
  double share = 0;  // of the median of the others
};
std::vector<OddRank> odd_ranks(const std::vector<RankRates>& ranks);

// A line a rank, with its host, and a line for each that stands out. The same for a program.
std::string to_text(const std::vector<RankRates>& ranks, const std::vector<std::string>& hosts);
std::string to_json(const std::vector<RankRates>& ranks, const std::vector<std::string>& hosts);

// Who measures with whom, round after round, each pair once: as many rounds as asked, or as there are. In a round of an
// odd number of ranks one is alone.
std::vector<std::vector<std::vector<int>>> pairings(int ranks, int rounds);

}  // namespace shoal::doctor
