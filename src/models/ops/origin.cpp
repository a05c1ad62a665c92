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
    case Origin::Op::rms_norm_one: return rms_norm_one(from.at(0), from.at(1), origin.eps);
    case Origin::Op::silu: return activate(from.at(0), Activation::silu);
    case Origin::Op::gated_gelu_exact: return activate_gated(from.at(0), from.at(1), Activation::gelu_exact);
    case Origin::Op::gated_gelu_tanh: return activate_gated(from.at(0), from.at(1), Activation::gelu_tanh);
    case Origin::Op::gated_relu: return activate_gated(from.at(0), from.at(1), Activation::relu);
    case Origin::Op::none: break;
  }
  SHOAL_CHECK(false, "an operand without an origin cannot be made again");
  return {};
}

Origin activation_origin(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::silu: return {Origin::Op::silu, {x}};
    case Activation::gelu_tanh: return {Origin::Op::gelu_tanh, {x}};
    case Activation::gelu_exact: return {Origin::Op::gelu_exact, {x}};
    case Activation::relu: break;
  }
  return {};
}

Origin gated_origin(const at::Tensor& gate, const at::Tensor& up, Activation activation) {
  switch (activation) {
    case Activation::silu: return {Origin::Op::swiglu, {gate, up}};
    case Activation::gelu_tanh: return {Origin::Op::gated_gelu_tanh, {gate, up}};
    case Activation::gelu_exact: return {Origin::Op::gated_gelu_exact, {gate, up}};
    case Activation::relu: break;
  }
  return {Origin::Op::gated_relu, {gate, up}};
}

}  // namespace shoal::models::ops
