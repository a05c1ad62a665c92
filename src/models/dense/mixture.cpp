// See mixture.h.
#include "models/dense/mixture.h"

#include <ATen/ops/alias.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>

#include "models/ops/experts.h"
#include "models/ops/swiglu_linear.h"

namespace shoal::models {

namespace {

// Probabilities in fp32; of the best, what their experts' results count.
ops::Routes route(const Pass& pass, const DenseExperts& experts, const at::Tensor& logits) {
  const at::Tensor probabilities = at::softmax(logits.flatten(0, -2), -1, at::kFloat);
  auto [best, chosen] = at::topk(probabilities, experts.per_token);
  if (experts.normalizes) best = best.div(best.sum(-1, /*keepdim=*/true));
  const ops::Routes routes = ops::make_routes(chosen, best.to(logits.scalar_type()), experts.count);
  if (at::Tensor& counted = pass.routed->of_layer[pass.layer]; !counted.defined()) counted = routes.counts();
  if (pass.probabilities != nullptr) *pass.probabilities = pass.probabilities->add(probabilities.sum(0));
  return routes;
}

}  // namespace

at::Tensor dense_mixture(const Pass& pass, const DenseConfig& config, const DenseBlock& block,
                         const ops::Operand& read) {
  const DenseMixture& mixture = block.mixture;
  std::vector<at::Tensor> matrices = {mixture.router};
  const bool shares = mixture.shared_gate.defined();
  if (shares) matrices.insert(matrices.end(), {mixture.shared_gate, block.gate.weight, block.up.weight});
  // An alias, so that backward adds their gradients up before those of the experts come to them, whether one operation
  // makes them all, as in selective recompute, or one each.
  const std::vector<at::Tensor> made = ops::linears(pass.matmul, {at::alias(read.value), read.origin}, matrices);
  const at::Tensor sum = ops::experts(read, route(pass, config.experts, made[0]), {mixture.gate_up, mixture.down});
  if (!shares) return sum;
  const at::Tensor shared = ops::swiglu_linear(pass.matmul, made[2], made[3], block.down.weight,
                                               pass.remakes ? ops::Product::remade : ops::Product::kept);
  return sum.add(at::sigmoid(made[1]).mul(shared));
}

}  // namespace shoal::models
