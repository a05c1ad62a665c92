// See repeatable_attention.h.
#include "models/ops/repeatable_attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "models/ops/cudnn_backward.h"

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;

struct RepeatableAttention final : ag::Function<RepeatableAttention> {
  static Tensor forward(ag::AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
    const auto made = at::_scaled_dot_product_cudnn_attention(q, k, v, /*attn_bias=*/{}, /*compute_log_sumexp=*/true,
                                                              /*dropout_p=*/0.0, /*is_causal=*/true,
                                                              /*return_debug_mask=*/false, scale);
    const Tensor& out = std::get<0>(made);
    // One number a row, as both libraries write it but for the shape.
    const Tensor sums = std::get<1>(made).view({q.size(0), q.size(1), q.size(2)});
    ctx->save_for_backward({q, k, v, out, sums, std::get<6>(made), std::get<7>(made)});
    ctx->saved_data["scale"] = scale;
    return out;
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &sums = saved[4];
    const double scale = ctx->saved_data["scale"].toDouble();
    if (auto made = cudnn_backward({grads[0], q, k, v, out, sums, scale})) {
      return {std::move(made->q), std::move(made->k), std::move(made->v), Tensor()};
    }
    auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_backward(
        grads[0], q, k, v, out, sums, /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, q.size(2), k.size(2), /*dropout_p=*/0.0,
        /*is_causal=*/true, saved[5], saved[6], scale);
    return {dq, dk, dv, Tensor()};
  }
};

}  // namespace

bool wants_repeatable_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  constexpr int64_t kMostDim = 128, kTile = 8;  // what both libraries take on every GPU that Shoal knows
  const at::Context& context = at::globalContext();
  const auto fits = [&](const Tensor& x) {
    return x.scalar_type() == q.scalar_type() && x.size(3) <= kMostDim && x.size(3) % kTile == 0 && x.stride(3) == 1;
  };
  return q.is_cuda() && context.deterministicAlgorithms() && !context.deterministicAlgorithmsWarnOnly() &&
         context.userEnabledCuDNNSDP() && (q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf) &&
         fits(q) && fits(k) && fits(v) && q.size(3) == v.size(3) && q.size(2) == k.size(2) && q.size(2) > 1;
}

Tensor repeatable_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
  return RepeatableAttention::apply(q, k, v, scale);
}

}  // namespace shoal::models::ops
