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
#include "models/ops/weight_gradient.h"
#include "shoal/error.h"

namespace shoal::models::ops {

namespace {

namespace ag = torch::autograd;
using at::Tensor;
using cuda::Fp8;

Tensor rows_of(const Tensor& x) { return x.reshape({-1, x.size(-1)}); }

bool any_defined(at::TensorList tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& tensor) { return tensor.defined(); });
}

// Whether one of them gets a gradient: else its product's input is not needed again.
bool any_trained(at::TensorList weights) {
  return std::any_of(weights.begin(), weights.end(), [](const Tensor& weight) { return weight.requires_grad(); });
}

// Whether plain matmuls go through PlainLinears; else each is an at::linear.
bool is_ours(const Tensor& x, at::TensorList biases) { return !any_defined(biases) && x.is_cuda(); }

std::vector<int64_t> sizes_after(const Tensor& x, const Tensor& weight) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return sizes;
}

// What the backward of several matrices on one x gives back, and what it is asked for.
struct Gradients {
  Tensor x;
  ag::variable_list weights;
};
struct Asked {
  ag::variable_list weights, dys;
  bool of_x = true;
  std::vector<bool> of_weights;  // which of them are asked for
};

// The gradient of x, if it was asked for, in the shape that x had.
Tensor in_shape(const Tensor& dx, ag::AutogradContext* ctx) {
  return dx.defined() ? dx.view(ctx->saved_data["sizes"].toIntVector()) : dx;
}

Asked asked_for(ag::AutogradContext* ctx, ag::variable_list weights, const ag::variable_list& dys) {
  Asked asked = {std::move(weights), dys, ctx->needs_input_grad(0), {}};
  const size_t count = asked.weights.size();
  for (size_t i = 0; i < count; ++i) asked.of_weights.push_back(ctx->needs_input_grad(1 + i));
  return asked;
}

// The gradient of x is summed by the matmuls themselves, which saves a pass over it for each matrix after the first.
Gradients joint_gradients(const Tensor& x, const Asked& asked) {
  Gradients gradients;
  for (size_t i = 0; i < asked.weights.size(); ++i) {
    const Tensor dy = rows_of(asked.dys[i]);
    if (asked.of_x && i == 0) {
      gradients.x = at::mm(dy, asked.weights[i]);
    } else if (asked.of_x) {
      at::addmm_out(gradients.x, gradients.x, dy, asked.weights[i]);
    }
    gradients.weights.push_back(asked.of_weights[i] ? weight_gradient(asked.weights[i], dy.t(), x) : Tensor());
  }
  return gradients;
}

// As the library's own backward of one at::linear each computes and adds them: the last first, and the gradient of a
// matrix that lies transposed transposed too.
Gradients separate_gradients(const Tensor& x, const Asked& asked) {
  Gradients gradients;
  gradients.weights.resize(asked.weights.size());
  for (size_t i = asked.weights.size(); i-- > 0;) {
    const Tensor& weight = asked.weights[i];
    const Tensor dy = rows_of(asked.dys[i]);
    const Tensor part = at::mm(dy, weight);
    gradients.x = gradients.x.defined() ? gradients.x.add_(part) : part;
    if (asked.of_weights[i]) {
      gradients.weights[i] = weight.is_contiguous() ? at::mm(dy.t(), x) : at::mm(x.t(), dy).t();
    }
  }
  return gradients;
}

Gradients fp8_gradients(const Fp8Matrix& x8, const Asked& asked, Matmul how) {
  Gradients gradients;
  for (size_t i = 0; i < asked.weights.size(); ++i) {
    const Tensor& weight = asked.weights[i];
    const Tensor dy = rows_of(asked.dys[i]).contiguous();
    const Fp8Both dy8 = to_fp8(dy, Fp8::e5m2, how, Sides::both);
    const Fp8Both weight8 = to_fp8(weight.contiguous(), Fp8::e4m3, how, Sides::transposed);
    const Tensor part = multiply_fp8(dy8.straight, weight8.transposed, {.dtype = dy.scalar_type()});
    gradients.x = gradients.x.defined() ? gradients.x.add_(part) : part;
    gradients.weights.emplace_back();
    if (!asked.of_weights[i]) continue;
    gradients.weights.back() = make_weight_gradient(weight, [&](const Tensor& target) {
      return multiply_fp8(dy8.transposed, x8, {.dtype = weight.scalar_type(), .target = target});
    });
  }
  return gradients;
}

// x as a matrix; the results in the shape that x had.
ag::variable_list plain_products(const Tensor& x, const Tensor& given, at::TensorList weights) {
  ag::variable_list outputs;
  for (const Tensor& weight : weights) {
    outputs.push_back(at::_unsafe_view(at::mm(x, weight.t()), sizes_after(given, weight)));  // not tracked as a view
  }
  return outputs;
}

ag::variable_list fp8_products(const Fp8Matrix& x8, const Tensor& given, at::TensorList weights, Matmul how) {
  ag::variable_list outputs;
  for (const Tensor& weight : weights) {
    const Fp8Both weight8 = to_fp8(weight.contiguous(), Fp8::e4m3, how, Sides::straight);
    const Tensor y = multiply_fp8(x8, weight8.straight, {.dtype = given.scalar_type(), .fast_sums = true});
    outputs.push_back(at::_unsafe_view(y, sizes_after(given, weight)));
  }
  return outputs;
}

// Matrices on one x on a GPU, without biases.
struct PlainLinears final : ag::Function<PlainLinears> {
  static ag::variable_list forward(ag::AutogradContext* ctx, const Tensor& given, at::TensorList weights) {
    const Tensor x = rows_of(given).contiguous();
    ctx->saved_data["sizes"] = given.sizes().vec();
    ag::variable_list kept = {any_trained(weights) ? x : Tensor()};
    kept.insert(kept.end(), weights.begin(), weights.end());
    ctx->save_for_backward(kept);
    return plain_products(x, given, weights);
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const Gradients made = joint_gradients(saved[0], asked_for(ctx, {saved.begin() + 1, saved.end()}, grads));
    ag::variable_list results = {in_shape(made.x, ctx)};
    results.insert(results.end(), made.weights.begin(), made.weights.end());
    return results;
  }
};

// [Note: what a matmul in fp8 needs]
// The product wants both operands with the summed dimension innermost. Forward sums over `in`: x and weight as they
// lie. dx sums over `out`: dy as it lies, weight transposed. dweight sums over tokens: dy and x transposed. So x and dy
// are rounded in both layouts at once; x^T is kept for backward, in 8 bits instead of 16, and the weight is rounded
// again there, since at stage 3 it is not there in between. Selective recompute does not keep x^T either: its origin is
// kept anyway, and backward rounds what it makes of it.
struct Fp8Linears final : ag::Function<Fp8Linears> {
  static ag::variable_list forward(ag::AutogradContext* ctx, const Tensor& given, at::TensorList weights, int64_t how) {
    const Fp8Both x8 = to_fp8(rows_of(given).contiguous(), Fp8::e4m3, static_cast<Matmul>(how), Sides::both);
    ag::variable_list kept = {x8.transposed.values, x8.transposed.scales};
    kept.insert(kept.end(), weights.begin(), weights.end());
    ctx->save_for_backward(kept);
    ctx->saved_data["how"] = how;
    ctx->saved_data["sizes"] = given.sizes().vec();
    return fp8_products(x8.straight, given, weights, static_cast<Matmul>(how));
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const Gradients made = fp8_gradients({saved[0], saved[1]}, asked_for(ctx, {saved.begin() + 2, saved.end()}, grads),
                                         static_cast<Matmul>(ctx->saved_data["how"].toInt()));
    ag::variable_list results = {in_shape(made.x, ctx)};
    results.insert(results.end(), made.weights.begin(), made.weights.end());
    results.emplace_back();  // how
    return results;
  }
};

// Of the ways above, the one that `how`, the device and the biases ask for, for an x that backward makes again.
struct RemadeLinears final : ag::Function<RemadeLinears> {
  // biases: those there are; owners: the number of each one's weight.
  static ag::variable_list forward(ag::AutogradContext* ctx, const Tensor& given, at::TensorList weights,
                                   at::TensorList biases, const std::vector<int64_t>& owners, int64_t how,
                                   const Origin& origin) {
    ag::variable_list kept = origin.from;
    kept.insert(kept.end(), weights.begin(), weights.end());
    ctx->save_for_backward(kept);
    ctx->saved_data["op"] = static_cast<int64_t>(origin.op);
    ctx->saved_data["from"] = static_cast<int64_t>(origin.from.size());
    ctx->saved_data["eps"] = origin.eps;
    ctx->saved_data["how"] = how;
    ctx->saved_data["owners"] = owners;
    ctx->saved_data["sizes"] = given.sizes().vec();
    const bool jointly = is_ours(given, biases);
    ctx->saved_data["jointly"] = jointly;
    const auto matmul = static_cast<Matmul>(how);
    if (matmul != Matmul::plain) {
      const Tensor x = rows_of(given).contiguous();
      return fp8_products(to_fp8(x, Fp8::e4m3, matmul, Sides::straight).straight, given, weights, matmul);
    }
    if (jointly) return plain_products(rows_of(given).contiguous(), given, weights);
    ag::variable_list outputs, of_each(weights.size());
    for (size_t i = 0; i < biases.size(); ++i) of_each[owners[i]] = biases[i];
    for (size_t i = 0; i < weights.size(); ++i) {
      const Tensor y = at::linear(given, weights[i], of_each[i]);
      outputs.push_back(at::_unsafe_view(y, y.sizes()));  // not tracked as a view
    }
    return outputs;
  }

  static ag::variable_list backward(ag::AutogradContext* ctx, const ag::variable_list& grads) {
    const ag::variable_list saved = ctx->get_saved_variables();
    const auto weights = saved.begin() + ctx->saved_data["from"].toInt();
    const Origin origin = {static_cast<Origin::Op>(ctx->saved_data["op"].toInt()),
                           {saved.begin(), weights},
                           ctx->saved_data["eps"].toDouble()};
    const auto how = static_cast<Matmul>(ctx->saved_data["how"].toInt());
    const Asked asked = asked_for(ctx, {weights, saved.end()}, grads);
    const bool needs_x = std::find(asked.of_weights.begin(), asked.of_weights.end(), true) != asked.of_weights.end();
    const Tensor x = needs_x ? rows_of(make_again(origin)).contiguous() : Tensor();
    Gradients made;
    if (how != Matmul::plain) {
      const Fp8Matrix x8 = needs_x ? to_fp8(x, Fp8::e4m3, how, Sides::transposed).transposed : Fp8Matrix{};
      made = fp8_gradients(x8, asked, how);
    } else {
      made = ctx->saved_data["jointly"].toBool() ? joint_gradients(x, asked) : separate_gradients(x, asked);
    }
    ag::variable_list results = {in_shape(made.x, ctx)};
    results.insert(results.end(), made.weights.begin(), made.weights.end());
    for (const int64_t owner : ctx->saved_data["owners"].toIntVector()) {  // autograd sums them over the rows
      results.push_back(ctx->needs_input_grad(results.size()) ? rows_of(grads[owner]) : Tensor());
    }
    results.resize(results.size() + 3);  // owners, how, origin
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

Tensor linear(Matmul how, const Operand& x, const Tensor& weight, const Tensor& bias) {
  return linears(how, x, {weight}, {bias})[0];
}

std::vector<Tensor> linears(Matmul how, const Operand& x, const std::vector<Tensor>& weights,
                            const std::vector<Tensor>& biases) {
  const bool plain = how == Matmul::plain;
  const bool remade = x.origin.op != Origin::Op::none;
  if (!plain) {
    check_fp8(x.value);
    check_sizes(weights);
  }
  std::vector<Tensor> of_each = biases;  // fp8 adds them afterwards
  of_each.resize(weights.size());
  std::vector<Tensor> outputs;
  if (remade) {
    std::vector<Tensor> inside;
    std::vector<int64_t> owners;
    for (size_t i = 0; plain && i < weights.size(); ++i) {
      if (!of_each[i].defined()) continue;
      inside.push_back(of_each[i]);
      owners.push_back(static_cast<int64_t>(i));
    }
    outputs = RemadeLinears::apply(x.value, at::TensorList(weights), at::TensorList(inside), owners,
                                   static_cast<int64_t>(how), x.origin);
  } else if (!plain) {
    outputs = Fp8Linears::apply(x.value, at::TensorList(weights), static_cast<int64_t>(how));
  } else if (is_ours(x.value, biases)) {
    outputs = PlainLinears::apply(x.value, at::TensorList(weights));
  } else {
    for (size_t i = 0; i < weights.size(); ++i) outputs.push_back(at::linear(x.value, weights[i], of_each[i]));
  }
  if (plain) return outputs;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (of_each[i].defined()) outputs[i] = outputs[i].add(of_each[i]);
  }
  return outputs;
}

void check_fp8(const Tensor& x) {
  const char* kWhatToDo = "Set fp8.enabled to false, or run on a GPU of compute capability 8.9 or later.";
  if (!x.is_cuda()) {
    throw Error("config fp8.enabled", fmt::format("true, and the model is on the {}. {}", x.device().str(), kWhatToDo));
  }
  if (!cuda::multiplies_fp8()) {
    throw Error("config fp8.enabled", fmt::format("true, and this GPU does not multiply fp8. {}", kWhatToDo));
  }
}

}  // namespace shoal::models::ops
