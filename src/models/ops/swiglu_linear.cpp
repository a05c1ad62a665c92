// See swiglu_linear.h.
#include "models/ops/swiglu_linear.h"

#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/ops/activation.h"
#include "models/ops/cuda/activation.h"
#include "models/ops/launch.h"
#include "models/ops/weight_gradient.h"

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;

Tensor as_matrix(const Tensor& x) { return x.reshape({-1, x.size(-1)}).contiguous(); }

struct SwigluLinear final : ag::Function<SwigluLinear> {
  static Tensor forward(ag::AutogradContext* ctx, const Tensor& given_gate, const Tensor& given_up,
                        const Tensor& weight) {
    const Tensor gate = as_matrix(given_gate);
    const Tensor up = as_matrix(given_up);
    ctx->save_for_backward({gate, up, weight});
    std::vector<int64_t> sizes = given_gate.sizes().vec();
    ctx->saved_data["sizes"] = sizes;
    sizes.back() = weight.size(0);
    return at::_unsafe_view(at::mm(swiglu(gate, up), weight.t()), sizes);  // not tracked as a view
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1], &weight = saved[2];
    const Tensor dy = as_matrix(grads[0]);
    const Tensor product = at::mm(dy, weight);  // its gradient at first, then itself
    const Tensor dgate = at::empty_like(gate);
    const Tensor dup = at::empty_like(up);
    cuda::SwigluBackward args;
    args.gate = gate.const_data_ptr();
    args.up = up.const_data_ptr();
    args.dy = product.const_data_ptr();
    args.dgate = dgate.mutable_data_ptr();
    args.dup = dup.mutable_data_ptr();
    args.y = product.mutable_data_ptr();
    args.numel = gate.numel();
    args.dtype = dtype_of(gate);
    cuda::swiglu_backward(args, stream_of(gate));
    const Tensor dweight = ctx->needs_input_grad(2) ? weight_gradient(weight, dy.t(), product) : Tensor();
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    return {dgate.view(sizes), dup.view(sizes), dweight};
  }
};

}  // namespace

Tensor swiglu_linear(Matmul how, const Tensor& gate, const Tensor& up, const Tensor& weight, Product product) {
  if (how == Matmul::plain && runs_fused({gate, up, weight}) && gate.sizes() == up.sizes()) {
    return SwigluLinear::apply(gate, up, weight);
  }
  Operand x = swiglu(gate, up);
  if (product == Product::remade) x.origin = {Origin::Op::swiglu, {gate, up}};
  return linear(how, x, weight);
}

}  // namespace shoal::models::ops
