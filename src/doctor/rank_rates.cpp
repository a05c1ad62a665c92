// See rank_rates.h.
#include "doctor/rank_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

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

// A round of a tournament: one stays, the others go round it. All alone where the rounds are over.
Round met_in(int players, int round) {
  const int places = players + players % 2;  // the last of an odd number has nobody
  Round parts;
  if (round >= places - 1) {
    for (int player = 0; player < players; ++player) parts.push_back({player});
    return parts;
  }
  const auto at = [&](int place) { return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1); };
  for (int place = 0; place < places / 2; ++place) {
    const auto [one, other] = std::minmax({at(place), at(places - 1 - place)});
    parts.push_back(other < players ? std::vector<int>{one, other} : std::vector<int>{one});
  }
  return parts;
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

Pairings pairings(const std::vector<std::string>& hosts, int rounds) {
  std::map<std::string, std::vector<int>> ranks_of;
  for (size_t rank = 0; rank < hosts.size(); ++rank) ranks_of[hosts[rank]].push_back(static_cast<int>(rank));
  std::vector<std::vector<int>> groups;
  for (const auto& [host, ranks] : ranks_of) groups.push_back(ranks);
  Pairings found;
  for (int round = 0; round < rounds; ++round) {
    Round within, between;
    for (const std::vector<int>& ranks : groups) {
      for (const std::vector<int>& pair : met_in(static_cast<int>(ranks.size()), round)) {
        within.emplace_back();
        for (const int at : pair) within.back().push_back(ranks[static_cast<size_t>(at)]);
      }
    }
    for (const std::vector<int>& pair : met_in(static_cast<int>(groups.size()), round)) {
      const std::vector<int>& here = groups[static_cast<size_t>(pair.front())];
      const std::vector<int>& there = groups[static_cast<size_t>(pair.back())];
      for (size_t at = 0; at < std::max(here.size(), there.size()); ++at) {
        const bool both = pair.size() == 2 && at < here.size() && at < there.size();
        if (both) between.push_back({here[at], there[at]});
        if (!both && at < here.size()) between.push_back({here[at]});
        if (!both && pair.size() == 2 && at < there.size()) between.push_back({there[at]});
      }
    }
    const auto has_pairs = [](const Round& parts) {
      return std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part.size() == 2; });
    };
    if (has_pairs(within)) found.within.push_back(std::move(within));
    if (has_pairs(between)) found.between.push_back(std::move(between));
  }
  return found;
}

}  // namespace shoal::doctor
