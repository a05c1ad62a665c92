// See blame.h.
#include "comm/failure/blame.h"

#include <set>

namespace shoal {

std::vector<int> ends_of_waits(const std::vector<int>& missing, const std::function<std::vector<int>(int)>& waits_for) {
  std::set<int> seen, ends;
  std::vector<int> open = missing;
  while (!open.empty()) {
    const int rank = open.back();
    open.pop_back();
    if (!seen.insert(rank).second) continue;
    const std::vector<int> others = waits_for(rank);
    if (others.empty()) ends.insert(rank);
    open.insert(open.end(), others.begin(), others.end());
  }
  if (ends.empty()) return missing;
  return {ends.begin(), ends.end()};
}

}  // namespace shoal
