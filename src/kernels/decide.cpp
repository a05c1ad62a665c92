// See decide.h.
#include "kernels/decide.h"

#include "kernels/decide_body.h"

namespace shoal::kernels {

void decide(const Decision& decision) {
  double sum = 0;
  for (int64_t i = 0; i < decision.ranks * decision.flats; ++i) sum += decision.square_sums[i];
  decide_by(sum, decision);
}

}  // namespace shoal::kernels
