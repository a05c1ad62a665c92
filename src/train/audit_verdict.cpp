// See audit_verdict.h.
#include "train/audit_verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

namespace shoal::train {

namespace {

// Runs of each leaf, in the order in which they came.
std::map<int64_t, std::vector<const LeafRun*>> by_leaf(const std::vector<LeafRun>& runs) {
  std::map<int64_t, std::vector<const LeafRun*>> leaves;
  for (const LeafRun& run : runs) leaves[run.leaf].push_back(&run);
  return leaves;
}

size_t first_difference(const std::vector<uint64_t>& one, const std::vector<uint64_t>& other) {
  return static_cast<size_t>(std::mismatch(one.begin(), one.end(), other.begin()).first - one.begin());
}

// The ranks that are alone with their digests where at least two others share theirs; else empty.
std::set<int> minority(const std::map<std::vector<uint64_t>, std::set<int>>& ranks_of) {
  const auto most = std::max_element(ranks_of.begin(), ranks_of.end(), [](const auto& one, const auto& other) {
    return one.second.size() < other.second.size();
  });
  std::set<int> alone;
  size_t as_many = 0;
  for (const auto& [digests, ranks] : ranks_of) {
    as_many += ranks.size() == most->second.size();
    if (digests != most->first) alone.insert(ranks.begin(), ranks.end());
  }
  return as_many == 1 && most->second.size() > 1 ? alone : std::set<int>();
}

std::string ranks_text(const std::set<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

bool runs_differ(const std::vector<LeafRun>& runs) {
  for (const auto& [leaf, of_leaf] : by_leaf(runs)) {
    for (const LeafRun* run : of_leaf) {
      if (run->digests != of_leaf.front()->digests) return true;
    }
  }
  return false;
}

std::string judge_runs(const std::vector<LeafRun>& runs, const std::vector<std::string>& names) {
  std::set<int> unsteady, outvoted, at_odds;
  std::string first;
  for (const auto& [leaf, of_leaf] : by_leaf(runs)) {
    std::map<int, const LeafRun*> of_rank;
    std::map<std::vector<uint64_t>, std::set<int>> ranks_of;
    bool differ = false;
    for (const LeafRun* run : of_leaf) {
      const auto [before, is_first] = of_rank.emplace(run->rank, run);
      if (!is_first && before->second->digests != run->digests) unsteady.insert(run->rank);
      ranks_of[run->digests].insert(run->rank);
      if (run->digests == of_leaf.front()->digests) continue;
      differ = true;
      if (first.empty()) {
        first =
            fmt::format("{} of micro-batch {}", names[first_difference(run->digests, of_leaf.front()->digests)], leaf);
      }
    }
    if (!differ) continue;
    outvoted.merge(minority(ranks_of));
    for (const auto& [digests, ranks] : ranks_of) at_odds.insert(ranks.begin(), ranks.end());
  }
  if (first.empty()) return "";
  if (!unsteady.empty()) {
    return fmt::format("{} computed one micro-batch twice with different results, in {} first", ranks_text(unsteady),
                       first);
  }
  if (!outvoted.empty()) {
    return fmt::format("{} computed other results than two other ranks, in {} first", ranks_text(outvoted), first);
  }
  return fmt::format("{} computed different results, in {} first; each repeats its own, so which is wrong is not known",
                     ranks_text(at_odds), first);
}

std::string judge_copies(const std::vector<std::vector<uint64_t>>& digests, const std::vector<std::string>& names) {
  std::map<std::vector<uint64_t>, std::set<int>> ranks_of;
  std::string first;
  for (size_t rank = 0; rank < digests.size(); ++rank) {
    ranks_of[digests[rank]].insert(static_cast<int>(rank));
    if (first.empty() && digests[rank] != digests[0]) first = names[first_difference(digests[rank], digests[0])];
  }
  if (first.empty()) return "";
  if (const std::set<int> alone = minority(ranks_of); !alone.empty()) {
    return fmt::format("{} has other weights than the other ranks, in {} first", ranks_text(alone), first);
  }
  return fmt::format("ranks have different weights, in {} first; which are wrong is not known", first);
}

}  // namespace shoal::train
