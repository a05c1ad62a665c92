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
  double memory = 0;   // copies, read and write counted
  double link = 0;     // both ways between two ranks of a host, with the best of its partners
  double network = 0;  // the same between two hosts
  double disk_write = 0, disk_read = 0;
};

struct RateKind {
  std::string_view name;
  double RankRates::*rate;
  std::string_view unit;  // of a second
};
inline constexpr std::array<RateKind, 6> kRateKinds = {{{"compute", &RankRates::compute, "flop"},
                                                        {"memory", &RankRates::memory, "B"},
                                                        {"link", &RankRates::link, "B"},
                                                        {"network", &RankRates::network, "B"},
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

// Who measures with whom: in each round each rank stands in one part, of two ranks, or alone. Every rank has as many
// partners as others of its kind have, so that none is judged by better ones.
using Round = std::vector<std::vector<int>>;
struct Pairings {
  std::vector<Round> within;   // hosts
  std::vector<Round> between;  // them
};
// So many rounds of each, or as there are partners.
Pairings pairings(const std::vector<std::string>& hosts, int rounds);

}  // namespace shoal::doctor
