// Passes over two units of one weight each, of three elements, on one rank, driven by hand.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "engine/graph_hooks.h"
#include "engine/passes.h"
#include "unit/shard/model_parts.h"

namespace shoal::testing {

struct TwoUnits {
  explicit TwoUnits(int stage)
      : group(make_single_group()),
        parts({unit_spec(0, {3}), unit_spec(1, {3})}, stage, *group),
        weights(parts.weights()),
        gradients(parts.gradients()),
        passes(parts.layout, {.stage = stage, .gather = {}, .overlap = true}, weights, gradients, *group, *group) {
    for (int unit = 0; unit < 2; ++unit) {
      at::Tensor tensor = at::ones({3}).set_requires_grad(true);
      params.push_back(tensor);
      std::vector<ParamSlot> slots;
      slots.emplace_back(tensor, unit == 0 ? "first" : "second", DType::f32);
      weights.take_params(unit, std::move(slots));
      const std::vector<float> values(3, static_cast<float>(unit + 2));
      std::memcpy(weights.shard(unit, 0), values.data(), values.size() * sizeof(float));
      passes.hook_gradient(unit, 0, tensor);
    }
  }

  at::Tensor use(int unit, const at::Tensor& x) {
    passes.enter(unit, {x});
    at::Tensor y = x * params[static_cast<size_t>(unit)];
    passes.exit(unit, {y});
    return y;
  }
  void backward(const at::Tensor& loss) {
    passes.begin_backward(loss);
    torch::autograd::backward({loss}, {});
    passes.finish_backward();
    gradients.wait();
  }
  bool is_readable(int unit) {
    return message_of([&] { at::sum(params[static_cast<size_t>(unit)]); }).empty();
  }
  std::vector<float> gradient(int unit) const { return floats_at(gradients.shard(unit, 0), 3); }

  std::unique_ptr<Group> group;
  ModelParts parts;
  Weights weights;
  Gradients gradients;
  Passes passes;
  std::vector<at::Tensor> params;
};

}  // namespace shoal::testing
