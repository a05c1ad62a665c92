// Who computed wrong: reads what ranks found when they ran the same leaves. Pure; audit.h runs them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shoal::train {

// One rank's run of one leaf: digests of the loss and of each unit's gradients, in the order of `names`.
struct LeafRun {
  int rank = 0;
  int64_t leaf = 0;
  std::vector<uint64_t> digests;
};

// Whether runs of one leaf differ.
bool runs_differ(const std::vector<LeafRun>& runs);

// "" where they agree; else who is wrong, as far as that can be told, and in what first: a rank that does not repeat
// itself, a rank that is alone against two or more, or, of two ranks that each repeat themselves, both.
std::string judge_runs(const std::vector<LeafRun>& runs, const std::vector<std::string>& names);

// What several ranks keep of the same elements: `digests` of each rank, in the order of `names`. "" where they agree.
std::string judge_copies(const std::vector<std::vector<uint64_t>>& digests, const std::vector<std::string>& names);

}  // namespace shoal::train
