// See decide.h.
#include "kernels/decide.h"

#include "kernels/decide_body.h"

namespace shoal::kernels {

void decide(const Decision& decision) {
  FlatSums sums;
  for (int64_t flat = 0; flat < decision.flats; ++flat) sums.add(flat, sum_of_flat(decision, flat));
  decide_by(sums, decision);
}

}  // namespace shoal::kernels
