// See weight_gradient.h.
#include "models/ops/weight_gradient.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>

#include "engine/graph_hooks.h"

namespace shoal::models::ops {

at::Tensor make_weight_gradient(const at::Tensor& weight, const std::function<at::Tensor(const at::Tensor&)>& make) {
  // A backward that is itself differentiated writes into nothing that was there before.
  return make(at::GradMode::is_enabled() ? at::Tensor() : gradient_target(weight));
}

at::Tensor weight_gradient(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) {
  return make_weight_gradient(weight, [&](const at::Tensor& target) {
    if (!target.defined()) return at::mm(a, b);
    at::Tensor made = target;
    return at::mm_out(made, a, b);
  });
}

}  // namespace shoal::models::ops
