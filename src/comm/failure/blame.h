// Whom to blame for a rank that is late. In a world with several groups a late rank may itself wait for another, in
// another group: the one at the end of such a chain is who the user must look at. Pure: who waits for whom is passed
// in.
#pragma once

#include <functional>
#include <vector>

namespace shoal {

// The ranks at which the chains of waits from `missing` end: those that wait for nobody. `waits_for`: for whom a rank
// waits now. Where every chain bites its own tail, `missing` themselves.
std::vector<int> ends_of_waits(const std::vector<int>& missing, const std::function<std::vector<int>(int)>& waits_for);

}  // namespace shoal
