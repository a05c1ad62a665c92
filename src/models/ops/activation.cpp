// See activation.h.
#include "models/ops/activation.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/ops/cuda/activation.h"
#include "models/ops/launch.h"

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;

struct FusedSwiglu final : ag::Function<FusedSwiglu> {
  static Tensor forward(ag::AutogradContext* ctx, const Tensor& given_gate, const Tensor& given_up) {
    const Tensor gate = given_gate.contiguous();
    const Tensor up = given_up.contiguous();
    const Tensor y = at::empty_like(gate);
    cuda::swiglu({gate.const_data_ptr(), up.const_data_ptr(), y.mutable_data_ptr(), gate.numel(), dtype_of(gate)},
                 stream_of(gate));
    ctx->save_for_backward({gate, up});
    return y;
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const Tensor dy = grads[0].contiguous();
    cuda::SwigluBackward args;
    const Tensor dgate = at::empty_like(saved[0]);
    const Tensor dup = at::empty_like(saved[1]);
    args.gate = saved[0].const_data_ptr();
    args.up = saved[1].const_data_ptr();
    args.dy = dy.const_data_ptr();
    args.dgate = dgate.mutable_data_ptr();
    args.dup = dup.mutable_data_ptr();
    args.numel = dy.numel();
    args.dtype = dtype_of(dy);
    cuda::swiglu_backward(args, stream_of(dy));
    return {dgate, dup};
  }
};

struct FusedGelu final : ag::Function<FusedGelu> {
  static Tensor forward(ag::AutogradContext* ctx, const Tensor& given, bool exact) {
    const Tensor x = given.contiguous();
    const Tensor y = at::empty_like(x);
    cuda::gelu({x.const_data_ptr(), y.mutable_data_ptr(), x.numel(), kind(exact), dtype_of(x)}, stream_of(x));
    ctx->saved_data["exact"] = exact;
    ctx->save_for_backward({x});
    return y;
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const Tensor x = ctx->get_saved_variables()[0];
    const Tensor dy = grads[0].contiguous();
    const Tensor dx = at::empty_like(x);
    cuda::gelu_backward({x.const_data_ptr(), dy.const_data_ptr(), dx.mutable_data_ptr(), x.numel(),
                         kind(ctx->saved_data["exact"].toBool()), dtype_of(x)},
                        stream_of(x));
    return {dx, Tensor()};
  }

  static cuda::Gelu kind(bool exact) { return exact ? cuda::Gelu::exact : cuda::Gelu::tanh; }
};

}  // namespace

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  if (runs_fused({gate, up}) && gate.sizes() == up.sizes()) return FusedSwiglu::apply(gate, up);
  return at::silu(gate).mul(up);
}

Tensor gelu(const Tensor& x, bool exact) {
  if (runs_fused({x})) return FusedGelu::apply(x, exact);
  return at::gelu(x, exact ? "none" : "tanh");
}

Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::silu: return at::silu(x);
    case Activation::relu: return at::relu(x);
    case Activation::gelu_tanh:
    case Activation::gelu_exact: break;
  }
  return gelu(x, activation == Activation::gelu_exact);
}

Tensor activate_gated(const Tensor& gate, const Tensor& up, Activation activation) {
  return activation == Activation::silu ? swiglu(gate, up) : activate(gate, activation).mul(up);
}

}  // namespace shoal::models::ops
