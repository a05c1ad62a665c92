// See origin.h.
#include "models/ops/origin.h"

#include <ATen/core/grad_mode.h>

#include "base/check.h"
#include "models/ops/activation.h"
#include "models/ops/norm.h"

namespace shoal::models::ops {

at::Tensor make_again(const Origin& origin) {
  const at::NoGradGuard without_graph;
  const std::vector<at::Tensor>& from = origin.from;
  switch (origin.op) {
    case Origin::Op::rms_norm: return rms_norm(from.at(0), from.at(1), origin.eps);
    case Origin::Op::layer_norm: return layer_norm(from.at(0), from.at(1), from.at(2), origin.eps);
    case Origin::Op::swiglu: return swiglu(from.at(0), from.at(1));
    case Origin::Op::gelu_exact: return gelu(from.at(0), /*exact=*/true);
    case Origin::Op::gelu_tanh: return gelu(from.at(0), /*exact=*/false);
    case Origin::Op::none: break;
  }
  SHOAL_CHECK(false, "an operand without an origin cannot be made again");
  return {};
}

}  // namespace shoal::models::ops
