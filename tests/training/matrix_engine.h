// The matrix model with an engine over it, for tests of what an engine does between and around steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "training/matrix_run.h"
#include "training/outcome.h"

namespace shoal::testing {

// Everything sharded that can be, no clipping, so that stage 3 releases every parameter.
RunOptions released_at(int stage);

EngineOptions two_groups();

struct MatrixEngine {
  MatrixEngine(Group& world, const RunOptions& options, const EngineOptions& engine_options = two_groups());
  MatrixEngine(Group& world, const Config& config, const EngineOptions& engine_options = two_groups());

  at::Tensor loss(int64_t step, const ForwardOptions& options = {});
  StepResult train_step(int64_t step, const ForwardOptions& options = {});
  // The bytes of all parameters.
  std::string weights();
  // The same, of parameters that can be read without an engine.
  std::string plain_weights() const;

  Group& world;
  MatrixModel model;
  std::unique_ptr<Engine> engine;
};

}  // namespace shoal::testing
