// See trust_ratio.h.
#include "kernels/trust_ratio.h"

#include "kernels/trust_ratio_body.h"

namespace shoal::kernels {

void trust_ratios(const TrustRatios& args) {
  for (int64_t param = 0; param < args.count; ++param) set_ratio(args, param);
}

}  // namespace shoal::kernels
