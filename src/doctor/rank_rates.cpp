// See rank_rates.h.
#include "doctor/rank_rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace shoal::doctor {

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string rate_text(double rate, std::string_view unit) {
  if (rate <= 0) return "-";
  return rate >= 1e12 ? fmt::format("{:.2f} T{}/s", rate / 1e12, unit) : fmt::format("{:.2f} G{}/s", rate / 1e9, unit);
}

}  // namespace

std::vector<OddRank> odd_ranks(const std::vector<RankRates>& ranks) {
  std::vector<OddRank> odd;
  for (const RateKind& kind : kRateKinds) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      std::vector<double> others;
      for (size_t other = 0; other < ranks.size(); ++other) {
        if (other != rank && ranks[other].*kind.rate > 0) others.push_back(ranks[other].*kind.rate);
      }
      if (others.empty() || ranks[rank].*kind.rate <= 0) continue;
      const double share = ranks[rank].*kind.rate / median(others);
      if (share < kOddShare) odd.push_back({static_cast<int>(rank), &kind, share});
    }
  }
  return odd;
}

std::string to_text(const std::vector<RankRates>& ranks, const std::vector<std::string>& hosts) {
  std::string text = fmt::format("{:<6}{:<16}", "rank", "host");
  for (const RateKind& kind : kRateKinds) text += fmt::format("{:<15}", kind.name);
  text = text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    std::string line = fmt::format("{:<6}{:<16}", rank, hosts[rank]);
    for (const RateKind& kind : kRateKinds) line += fmt::format("{:<15}", rate_text(ranks[rank].*kind.rate, kind.unit));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  for (const OddRank& odd : odd_ranks(ranks)) {
    text += fmt::format("rank {} on {} stands out: {} {}, {:.2f} of the other ranks' median\n", odd.rank,
                        hosts[static_cast<size_t>(odd.rank)], odd.kind->name,
                        rate_text(ranks[static_cast<size_t>(odd.rank)].*odd.kind->rate, odd.kind->unit), odd.share);
  }
  return text;
}

std::string to_json(const std::vector<RankRates>& ranks, const std::vector<std::string>& hosts) {
  json::Value list = json::Array{};
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    json::Value entry = json::Object{};
    entry.set("rank", static_cast<int64_t>(rank));
    entry.set("host", hosts[rank]);
    for (const RateKind& kind : kRateKinds) {
      std::string name(kind.name);
      std::replace(name.begin(), name.end(), ' ', '_');
      const double rate = ranks[rank].*kind.rate;
      entry.set(name + "_per_s", rate > 0 ? json::Value(rate) : json::Value());
    }
    list.as_array().push_back(std::move(entry));
  }
  json::Value odd_list = json::Array{};
  for (const OddRank& odd : odd_ranks(ranks)) {
    json::Value entry = json::Object{};
    entry.set("rank", int64_t{odd.rank});
    entry.set("what", std::string(odd.kind->name));
    entry.set("share", odd.share);
    odd_list.as_array().push_back(std::move(entry));
  }
  json::Value all = json::Object{};
  all.set("ranks", std::move(list));
  all.set("odd", std::move(odd_list));
  return json::write(all, 2);
}

// One rank stays, the others go round it, as in a tournament.
std::vector<std::vector<std::vector<int>>> pairings(int ranks, int rounds) {
  const int places = ranks + ranks % 2;  // the last of an odd number has nobody
  std::vector<std::vector<std::vector<int>>> all;
  for (int round = 0; round < std::min(rounds, places - 1); ++round) {
    const auto at = [&](int place) { return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1); };
    std::vector<std::vector<int>> parts;
    for (int place = 0; place < places / 2; ++place) {
      const int one = std::min(at(place), at(places - 1 - place)), other = std::max(at(place), at(places - 1 - place));
      parts.push_back(other < ranks ? std::vector<int>{one, other} : std::vector<int>{one});
    }
    std::sort(parts.begin(), parts.end());
    all.push_back(std::move(parts));
  }
  return all;
}

}  // namespace shoal::doctor
