// See adapters.h.
#include "models/adapters.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>

#include <algorithm>

namespace shoal::models {

namespace {

// [Note: one order of sums]
// The gradient of x is a sum over all that read it, which autograd adds in the reverse order of forward. Matrices that
// make x again in backward give theirs as one sum, which alone is as good; with adapters beside them it would be added
// in another order than separate products of the library are. So on the CPU, where those are separate, each base matrix
// is by itself; frozen, it makes nothing again. The adapters' A are behind all of them, together in both ways.
std::vector<at::Tensor> base_products(ops::Matmul how, const ops::Operand& x, const std::vector<AdaptedLinear>& by,
                                      bool apart) {
  std::vector<at::Tensor> weights, biases, made;
  for (const AdaptedLinear& matrix : by) {
    weights.push_back(matrix.weight);
    biases.push_back(matrix.bias);
    if (apart) made.push_back(ops::linear(how, x, matrix.weight, matrix.bias));
  }
  return apart ? made : ops::linears(how, x, weights, biases);
}

}  // namespace

std::vector<at::Tensor> adapted_linears(ops::Matmul how, const ops::Operand& x, const std::vector<AdaptedLinear>& by,
                                        const Randomness& randomness) {
  const bool any = std::any_of(by.begin(), by.end(), [](const AdaptedLinear& m) { return m.adapter.is_there(); });
  std::vector<at::Tensor> made = base_products(how, x, by, any && !x.value.is_cuda());
  if (!any) return made;
  const auto drops = [&](const Adapter& adapter) { return adapter.dropout > 0 && randomness.training; };
  std::vector<at::Tensor> on_x;  // the A that read x itself
  for (const AdaptedLinear& matrix : by) {
    if (matrix.adapter.is_there() && !drops(matrix.adapter)) on_x.push_back(matrix.adapter.a);
  }
  std::vector<at::Tensor> low;
  if (!on_x.empty()) low = ops::linears(ops::Matmul::plain, x, on_x);
  auto next = low.begin();
  for (size_t i = 0; i < by.size(); ++i) {
    const Adapter& adapter = by[i].adapter;
    if (!adapter.is_there()) continue;
    const at::Tensor read =
        drops(adapter) ? at::linear(dropout(x.value, adapter.dropout, randomness), adapter.a) : *next++;
    made[i] =
        at::addmm(made[i].flatten(0, -2), read.flatten(0, -2), adapter.b.t(), 1, adapter.scale).view(made[i].sizes());
  }
  return made;
}

}  // namespace shoal::models
