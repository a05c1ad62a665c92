// See adapters.h.
#include "models/adapters.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>

#include "models/ops/linear.h"

namespace shoal::models {

at::Tensor add_adapter(const at::Tensor& y, const ops::Operand& x, const Adapter& adapter,
                       const Randomness& randomness) {
  if (!adapter.is_there()) return y;
  const bool drops = adapter.dropout > 0 && randomness.training;
  // An x that backward makes again is not kept here either.
  const at::Tensor low = drops ? at::linear(dropout(x.value, adapter.dropout, randomness), adapter.a)
                               : ops::linear(ops::Matmul::plain, x, adapter.a);
  return at::addmm(y.flatten(0, -2), low.flatten(0, -2), adapter.b.t(), 1, adapter.scale).view(y.sizes());
}

}  // namespace shoal::models
