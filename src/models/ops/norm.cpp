// See norm.h.
#include "models/ops/norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/ops/cuda/norm.h"
#include "models/ops/launch.h"

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;

enum class Fork : uint8_t { no, yes };  // whether x is given back beside the norm

// x [..., columns]. Without a bias it is RMSNorm, with one LayerNorm.
struct FusedNorm final : ag::Function<FusedNorm> {
  // {norm}; with a residual {sum, norm}, and forked {x, norm}.
  static ag::variable_list forward(ag::AutogradContext* ctx, const Tensor& given, const std::optional<Tensor>& residual,
                                   const Tensor& weight, const std::optional<Tensor>& bias, double eps, Fork fork) {
    const Tensor x = given.contiguous();
    const bool centered = bias.has_value();
    cuda::NormForward args;
    args.columns = x.size(-1);
    args.rows = args.columns == 0 ? 0 : x.numel() / args.columns;
    args.eps = static_cast<float>(eps);
    args.dtype = dtype_of(x);
    const Tensor y = at::empty_like(x);
    const Tensor rstd = at::empty({args.rows}, x.options().dtype(at::kFloat));
    const Tensor mean = centered ? at::empty_like(rstd) : Tensor();
    const Tensor added = residual ? residual->contiguous() : Tensor();
    const Tensor sum = residual ? at::empty_like(x) : Tensor();
    args.x = x.const_data_ptr();
    args.weight = weight.const_data_ptr();
    args.y = y.mutable_data_ptr();
    args.rstd = rstd.mutable_data_ptr<float>();
    if (added.defined()) {
      args.residual = added.const_data_ptr();
      args.sum = sum.mutable_data_ptr();
    }
    if (centered) {
      args.bias = bias->const_data_ptr();
      args.mean = mean.mutable_data_ptr<float>();
      cuda::layer_norm(args, stream_of(x));
    } else {
      cuda::rms_norm(args, stream_of(x));
    }
    ctx->saved_data["added"] = added.defined();
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({added.defined() ? sum : x, weight, rstd, mean});
    if (added.defined()) return {sum, y};
    if (fork == Fork::yes) return {given, y};
    return {y};
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const bool added = ctx->saved_data["added"].toBool();
    const Tensor dsum = grads.size() > 1 && grads[0].defined() ? grads[0].contiguous() : Tensor();
    if (!grads.back().defined()) return {dsum, added ? dsum : Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
    const Tensor dy = grads.back().contiguous();
    const ag::variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2], &mean = saved[3];
    const bool centered = mean.defined();
    cuda::NormBackward args;
    args.columns = x.size(-1);
    args.rows = rstd.numel();
    args.dtype = dtype_of(x);
    const Tensor dx = at::empty_like(x);
    const Tensor dweight = at::empty_like(weight);
    const Tensor dbias = centered ? at::empty_like(weight) : Tensor();
    const Tensor partials = at::empty({cuda::norm_partials_numel(args.rows, args.columns, centered)}, rstd.options());
    args.x = x.const_data_ptr();
    args.weight = weight.const_data_ptr();
    args.rstd = rstd.const_data_ptr<float>();
    args.dy = dy.const_data_ptr();
    args.dsum = dsum.defined() ? dsum.const_data_ptr() : nullptr;
    args.dx = dx.mutable_data_ptr();
    args.dweight = dweight.mutable_data_ptr();
    args.partials = partials.mutable_data_ptr<float>();
    if (centered) {
      args.mean = mean.const_data_ptr<float>();
      args.dbias = dbias.mutable_data_ptr();
      cuda::layer_norm_backward(args, stream_of(x));
    } else {
      cuda::rms_norm_backward(args, stream_of(x));
    }
    return {dx, added ? dx : Tensor(), dweight, dbias, Tensor(), Tensor()};
  }
};

const std::optional<Tensor> kNone;

bool is_fused(const Tensor& x, const Tensor& weight) {
  return runs_fused({x, weight}) && weight.is_contiguous() && weight.dim() == 1 &&
         weight.numel() <= cuda::kMostNormColumns;
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  if (is_fused(x, weight)) return FusedNorm::apply(x, kNone, weight, kNone, eps, Fork::no)[0];
  return at::rms_norm(x, weight.sizes(), weight, eps);
}

ForkedNorm fork_rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  if (!is_fused(x, weight)) return {x, rms_norm(x, weight, eps)};
  const ag::variable_list both = FusedNorm::apply(x, kNone, weight, kNone, eps, Fork::yes);
  return {both[0], both[1]};
}

AddedNorm add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
  if (is_fused(x, weight) && runs_fused({x, residual})) {
    const ag::variable_list both = FusedNorm::apply(x, std::optional(residual), weight, kNone, eps, Fork::no);
    return {both[0], both[1]};
  }
  const Tensor sum = x.add(residual);
  return {sum, at::rms_norm(sum, weight.sizes(), weight, eps)};
}

Tensor rms_norm_one(const Tensor& x, const Tensor& weight, double eps) {
  return rms_norm(x.to(at::kFloat), weight.to(at::kFloat).add(1), eps).to(x.scalar_type());
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (is_fused(x, weight) && runs_fused({x, bias}))
    return FusedNorm::apply(x, kNone, weight, std::optional(bias), eps, Fork::no)[0];
  return at::layer_norm(x, weight.sizes(), weight, bias, eps);
}

ForkedNorm fork_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (!is_fused(x, weight) || !runs_fused({x, bias})) return {x, layer_norm(x, weight, bias, eps)};
  const ag::variable_list both = FusedNorm::apply(x, kNone, weight, std::optional(bias), eps, Fork::yes);
  return {both[0], both[1]};
}

AddedNorm add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                         double eps) {
  if (is_fused(x, weight) && runs_fused({x, residual, bias})) {
    const ag::variable_list both =
        FusedNorm::apply(x, std::optional(residual), weight, std::optional(bias), eps, Fork::no);
    return {both[0], both[1]};
  }
  const Tensor sum = x.add(residual);
  return {sum, at::layer_norm(sum, weight.sizes(), weight, bias, eps)};
}

}  // namespace shoal::models::ops
