// See own_linear.h.
#include "training/own_linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/ops/weight_gradient.h"

namespace shoal::testing {
namespace {

struct OwnLinear final : torch::autograd::Function<OwnLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight) {
    ctx->save_for_backward({x, weight});
    return at::linear(x, weight);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = grads[0].reshape({-1, grads[0].size(-1)});
    return {at::mm(dy, weight).view_as(x), models::ops::weight_gradient(weight, dy.t(), x.reshape({-1, x.size(-1)}))};
  }
};

}  // namespace

at::Tensor own_linear(const at::Tensor& x, const at::Tensor& weight) { return OwnLinear::apply(x, weight); }

}  // namespace shoal::testing
