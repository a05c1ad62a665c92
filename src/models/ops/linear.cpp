// See linear.h.
#include "models/ops/linear.h"

#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "models/ops/fp8.h"
#include "models/ops/launch.h"
#include "shoal/error.h"

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;
using kernels::cuda::Fp8;

// Several matrices on one x on a GPU, without biases. The gradient of x is summed by the matmuls themselves, which
// saves a pass over it for each matrix after the first.
struct PlainLinears final : ag::Function<PlainLinears> {
  static ag::variable_list forward(ag::AutogradContext* ctx, const Tensor& given, at::TensorList weights) {
    const Tensor x = given.reshape({-1, given.size(-1)}).contiguous();
    std::vector<int64_t> sizes = given.sizes().vec();
    ctx->saved_data["sizes"] = sizes;
    ag::variable_list outputs;
    ag::variable_list kept = {x};
    for (const Tensor& weight : weights) {
      sizes.back() = weight.size(0);
      outputs.push_back(at::_unsafe_view(at::mm(x, weight.t()), sizes));  // not tracked as a view
      kept.push_back(weight);
    }
    ctx->save_for_backward(kept);
    return outputs;
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const Tensor& x = saved[0];
    Tensor dx;
    ag::variable_list results(1);  // dx is filled in at the end
    for (size_t i = 0; i < grads.size(); ++i) {
      const Tensor& weight = saved[i + 1];
      const Tensor dy = grads[i].reshape({-1, grads[i].size(-1)});
      if (dx.defined()) {
        at::addmm_out(dx, dx, dy, weight);
      } else {
        dx = at::mm(dy, weight);
      }
      results.push_back(ctx->needs_input_grad(i + 1) ? at::mm(dy.t(), x) : Tensor());
    }
    results[0] = dx.view(ctx->saved_data["sizes"].toIntVector());
    return results;
  }
};

// [Note: what a matmul in fp8 needs]
// The product wants both operands with the summed dimension innermost. Forward sums over `in`: x and weight as they
// lie. dx sums over `out`: dy as it lies, weight transposed. dweight sums over tokens: dy and x transposed. So x and dy
// are rounded in both layouts at once; x^T is kept for backward, in 8 bits instead of 16, and the weight is rounded
// again there, since at stage 3 it is not there in between.
struct Fp8Linears final : ag::Function<Fp8Linears> {
  static ag::variable_list forward(ag::AutogradContext* ctx, const Tensor& given, at::TensorList weights, int64_t how) {
    const Tensor x = given.reshape({-1, given.size(-1)}).contiguous();
    const Fp8Both x8 = to_fp8(x, Fp8::e4m3, static_cast<Matmul>(how), Sides::both);
    std::vector<int64_t> sizes = given.sizes().vec();
    ag::variable_list outputs;
    ag::variable_list kept = {x8.transposed.values, x8.transposed.scales};
    for (const Tensor& weight : weights) {
      const Fp8Both weight8 = to_fp8(weight.contiguous(), Fp8::e4m3, static_cast<Matmul>(how), Sides::straight);
      sizes.back() = weight.size(0);
      const Tensor y = multiply_fp8(x8.straight, weight8.straight, x.scalar_type(), /*fast_sums=*/true);
      outputs.push_back(at::_unsafe_view(y, sizes));
      kept.push_back(weight);
    }
    ctx->save_for_backward(kept);
    ctx->saved_data["how"] = how;
    ctx->saved_data["sizes"] = given.sizes().vec();
    return outputs;
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const Fp8Matrix x8 = {saved[0], saved[1]};
    const auto how = static_cast<Matmul>(ctx->saved_data["how"].toInt());
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    Tensor dx;
    ag::variable_list results(1);  // dx is filled in at the end
    for (size_t i = 0; i < grads.size(); ++i) {
      const Tensor& weight = saved[i + 2];
      const Tensor dy = grads[i].reshape({-1, grads[i].size(-1)}).contiguous();
      const Fp8Both dy8 = to_fp8(dy, Fp8::e5m2, how, Sides::both);
      const Fp8Both weight8 = to_fp8(weight.contiguous(), Fp8::e4m3, how, Sides::transposed);
      const Tensor part = multiply_fp8(dy8.straight, weight8.transposed, dy.scalar_type(), /*fast_sums=*/false);
      dx = dx.defined() ? dx.add_(part) : part;
      results.push_back(ctx->needs_input_grad(i + 1)
                            ? multiply_fp8(dy8.transposed, x8, weight.scalar_type(), /*fast_sums=*/false)
                            : Tensor());
    }
    results[0] = dx.view(sizes);
    results.emplace_back();  // how
    return results;
  }
};

void check_sizes(const std::vector<Tensor>& weights) {
  constexpr int64_t kStep = 16;
  for (const Tensor& weight : weights) {
    if (weight.size(0) % kStep == 0 && weight.size(1) % kStep == 0) continue;
    throw Error("config fp8.enabled",
                fmt::format("a matrix of the model is {} x {}, and fp8 multiplies multiples of {}. Switch fp8 off.",
                            weight.size(0), weight.size(1), kStep));
  }
}

}  // namespace

Tensor linear(Matmul how, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linears(how, x, {weight}, {bias})[0];
}

std::vector<Tensor> linears(Matmul how, const Tensor& x, const std::vector<Tensor>& weights,
                            const std::vector<Tensor>& biases) {
  std::vector<Tensor> outputs;
  const bool with_bias = std::any_of(biases.begin(), biases.end(), [](const Tensor& bias) { return bias.defined(); });
  if (how == Matmul::plain && (weights.size() == 1 || with_bias || !x.is_cuda())) {
    for (size_t i = 0; i < weights.size(); ++i) {
      outputs.push_back(at::linear(x, weights[i], biases.empty() ? Tensor() : biases[i]));
    }
    return outputs;
  }
  if (how == Matmul::plain) {
    outputs = PlainLinears::apply(x, at::TensorList(weights));
  } else {
    check_fp8(x);
    check_sizes(weights);
    outputs = Fp8Linears::apply(x, at::TensorList(weights), static_cast<int64_t>(how));
  }
  for (size_t i = 0; i < biases.size(); ++i) {
    if (biases[i].defined()) outputs[i] = outputs[i].add(biases[i]);
  }
  return outputs;
}

void check_fp8(const Tensor& x) {
  const char* kWhatToDo = "Set fp8.enabled to false, or run on a GPU of compute capability 8.9 or later.";
  if (!x.is_cuda()) {
    throw Error("config fp8.enabled", fmt::format("true, and the model is on the {}. {}", x.device().str(), kWhatToDo));
  }
  if (!kernels::cuda::multiplies_fp8()) {
    throw Error("config fp8.enabled", fmt::format("true, and this GPU does not multiply fp8. {}", kWhatToDo));
  }
}

}  // namespace shoal::models::ops
