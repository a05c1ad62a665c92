// What the tests of shard/, optim/ and engine/ share: a small layout with its weights and gradients on one rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "device/host_queue.h"
#include "device/ledger.h"
#include "layout/stage.h"
#include "shard/gradients.h"
#include "shard/param_slot.h"
#include "shard/weights.h"
#include "shoal/group.h"
#include "training/outcome.h"

namespace shoal::testing {

inline std::vector<float> floats_at(const void* data, int64_t numel) {
  const auto* values = static_cast<const float*>(data);
  return {values, values + numel};
}

inline at::Tensor tensor_of(const std::vector<float>& values) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kFloat);
  std::memcpy(tensor.mutable_data_ptr(), values.data(), values.size() * sizeof(float));
  return tensor;
}

// A unit named "u<index>" of parameters "p<index>" with these numbers of elements.
inline UnitSpec unit_spec(int index, const std::vector<int64_t>& numels, DType dtype = DType::f32) {
  UnitSpec unit;
  unit.name = fmt::format("u{}", index);
  for (size_t param = 0; param < numels.size(); ++param) {
    unit.params.push_back({fmt::format("p{}", param), {numels[param]}, dtype, true, 0});
  }
  return unit;
}

// The layout and ledger of one rank; weights and gradients on demand.
struct ModelParts {
  ModelParts(std::vector<UnitSpec> specs_in, int stage_in, Group& group_in, int64_t persistence_threshold = 0)
      : specs(std::move(specs_in)),
        stage(stage_in),
        group(group_in),
        layout(lay_out(specs, {.mesh = group_in.size(), .persistence_threshold = persistence_threshold})) {}

  Weights weights() { return Weights(layout, {.stage = stage}, nullptr, group, *queue, *queue, ledger); }
  Gradients gradients(GradientOptions options = {}, const ReduceOptions& reduce = {}, const HostFlats& in_host = {}) {
    options.stage = stage;
    return Gradients(layout, options, reduce, group, *queue, *queue, ledger, in_host);
  }
  // Every flat.
  HostFlats all_flats() const {
    HostFlats all;
    for (const UnitLayout& unit : layout.units) all.emplace_back(unit.flats.size(), true);
    return all;
  }

  std::vector<UnitSpec> specs;
  int stage;
  Group& group;
  ModelLayout layout;
  std::unique_ptr<Queue> queue = make_host_queue();
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
};

}  // namespace shoal::testing
