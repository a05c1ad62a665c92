// See linear_cross_entropy.h.
#include "models/ops/linear_cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "models/ops/cuda/cross_entropy.h"
#include "models/ops/launch.h"

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;

int64_t padded(int64_t vocab) {
  constexpr int64_t kStep = cuda::kLogitsAlignment;
  return (vocab + kStep - 1) / kStep * kStep;
}

// [Note: the gradients of the head are made in forward]
// The gradient of the logits needs no more than the logits, so forward computes dx and dweight as if the loss were the
// sum of the tokens' losses. That leaves them free of the factor 1 / tokens, which in fp16 would push small ones to 0.
// dweight is a sum over chunks: it is kept in fp32 (the matmuls write and add fp32), as exact as one matmul over all
// tokens. backward multiplies both by the incoming gradient / tokens in fp32 and rounds once.
struct FusedLinearCrossEntropy final : ag::Function<FusedLinearCrossEntropy> {
  static Tensor forward(ag::AutogradContext* ctx, const Tensor& given, const Tensor& weight,
                        const Tensor& given_targets, bool with_dx, bool with_dweight, double softcap) {
    const Tensor x = given.reshape({-1, given.size(-1)}).contiguous();  // [tokens, hidden]
    const Tensor targets = given_targets.reshape({-1}).contiguous();
    const int64_t tokens = x.size(0);
    const int64_t vocab = weight.size(0);
    const int64_t chunk = tokens_a_chunk(tokens, vocab, x.size(1), dtype_of(x));
    const auto in_fp32 = x.options().dtype(at::kFloat);
    const Tensor buffer = at::empty({chunk, padded(vocab)}, x.options());
    const Tensor losses = at::empty({tokens}, in_fp32);
    const Tensor dx = with_dx ? at::empty_like(x) : Tensor();
    Tensor dweight = with_dweight ? at::empty(weight.sizes(), in_fp32) : Tensor();
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      const int64_t count = std::min(chunk, tokens - begin);
      const Tensor x_chunk = x.narrow(0, begin, count);
      Tensor logits = buffer.narrow(0, 0, count).narrow(1, 0, vocab);
      at::mm_out(logits, x_chunk, weight.t());
      Tensor slope;  // of the cap at each logit
      if (softcap > 0) {
        logits.div_(softcap).tanh_();
        // A copy also where the logits are in fp32, since they go on.
        if (with_dx || with_dweight) {
          slope = logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).square_().neg_().add_(1);
        }
        logits.mul_(softcap);
      }
      cuda::CrossEntropy args;
      args.logits = logits.mutable_data_ptr();
      args.targets = targets.const_data_ptr<int64_t>() + begin;
      args.losses = losses.mutable_data_ptr<float>() + begin;
      args.rows = count;
      args.vocab = vocab;
      args.stride = buffer.stride(0);
      args.with_gradient = with_dx || with_dweight;
      args.dtype = dtype_of(x);
      cuda::cross_entropy(args, stream_of(x));
      if (slope.defined()) logits.mul_(slope);
      if (with_dx) {
        Tensor dx_chunk = dx.narrow(0, begin, count);
        at::mm_out(dx_chunk, logits, weight);
      }
      if (with_dweight) add_product(dweight, logits.t(), x_chunk, begin == 0);
    }
    const Tensor mean = at::empty({}, in_fp32);
    const Tensor share = at::empty({}, in_fp32);
    cuda::mean_loss(losses.const_data_ptr<float>(), targets.const_data_ptr<int64_t>(), tokens,
                    mean.mutable_data_ptr<float>(), share.mutable_data_ptr<float>(), stream_of(x));
    ctx->save_for_backward({share, dx, dweight});
    ctx->saved_data["sizes"] = given.sizes().vec();
    ctx->saved_data["dtype"] = static_cast<int64_t>(x.scalar_type());
    return mean;
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const Tensor factor = grads[0].to(at::kFloat).contiguous();
    const ag::variable_list saved = ctx->get_saved_variables();
    const Tensor& share = saved[0];
    const auto dtype = static_cast<at::ScalarType>(ctx->saved_data["dtype"].toInt());
    const auto scaled = [&](const Tensor& in) {
      if (!in.defined()) return Tensor();
      const Tensor out = at::empty(in.sizes(), in.options().dtype(dtype));
      cuda::ScaleGradient args;
      args.in = in.const_data_ptr();
      args.out = out.mutable_data_ptr();
      args.factor = factor.const_data_ptr<float>();
      args.share = share.const_data_ptr<float>();
      args.numel = in.numel();
      args.in_dtype = dtype_of(in);
      args.out_dtype = dtype_of(out);
      cuda::scale_gradient(args, stream_of(in));
      return out;
    };
    Tensor dx = scaled(saved[1]);
    if (dx.defined()) dx = dx.view(ctx->saved_data["sizes"].toIntVector());
    return {dx, scaled(saved[2]), Tensor(), Tensor(), Tensor(), Tensor()};
  }

  // sum = a b, or sum += a b, in fp32 from any dtype.
  static void add_product(Tensor& sum, const Tensor& a, const Tensor& b, bool first) {
    if (a.scalar_type() == at::kFloat) {
      if (first) {
        at::mm_out(sum, a, b);
      } else {
        at::addmm_out(sum, sum, a, b);
      }
    } else if (first) {
      at::mm_out(sum, a, b, at::kFloat);
    } else {
      at::addmm_out(sum, sum, a, b, at::kFloat);
    }
  }
};

}  // namespace

Tensor cap_logits(const Tensor& logits, double softcap) {
  return softcap > 0 ? logits.div(softcap).tanh().mul(softcap) : logits;
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets, double softcap) {
  if (runs_fused({x, weight}) && targets.is_cuda() && x.numel() > 0) {
    const bool with_graph = at::GradMode::is_enabled();
    return FusedLinearCrossEntropy::apply(x, weight, targets, with_graph && x.requires_grad(),
                                          with_graph && weight.requires_grad(), softcap);
  }
  const Tensor logits = cap_logits(at::linear(x, weight), softcap);
  return at::cross_entropy_loss(logits.to(at::kFloat).flatten(0, -2), targets.flatten());
}

int64_t tokens_a_chunk(int64_t tokens, int64_t vocab, int64_t hidden, DType dtype) {
  // Each chunk reads and writes the whole fp32 gradient of the weight: half its size in logits keeps that small beside
  // the matmuls. At least 256 MiB, and whole tiles of tokens.
  constexpr int64_t kLeastNbytes = int64_t{256} << 20;
  constexpr int64_t kTile = 128;
  const int64_t nbytes = std::max(kLeastNbytes, vocab * hidden * 2);
  const int64_t most = std::max(nbytes / (padded(vocab) * static_cast<int64_t>(nbytes_of(dtype))), kTile);
  const int64_t chunks = (tokens + most - 1) / most;
  const int64_t even = (tokens + chunks - 1) / chunks;
  return std::min(tokens, (even + kTile - 1) / kTile * kTile);
}

size_t linear_cross_entropy_nbytes(int64_t tokens, int64_t vocab, int64_t hidden, DType dtype, bool capped,
                                   bool trained) {
  const auto in_dtype = static_cast<int64_t>(nbytes_of(dtype));
  // With a cap its slope besides, in fp32.
  const int64_t logits = tokens_a_chunk(tokens, vocab, hidden, dtype) * padded(vocab) * (in_dtype + (capped ? 4 : 0));
  const int64_t dx = tokens * hidden * in_dtype;
  const int64_t weight = trained ? vocab * hidden : 0;
  // Forward holds the logits, backward the scaled gradients beside what forward made.
  return static_cast<size_t>(dx + weight * 4 + std::max(logits, dx + weight * in_dtype));
}

}  // namespace shoal::models::ops
