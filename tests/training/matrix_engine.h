// The matrix model with an engine over it, for tests of what an engine does between and around steps.
#pragma once

#include <ATen/core/grad_mode.h>

#include <memory>
#include <string>
#include <vector>

#include "training/matrix_run.h"
#include "training/outcome.h"

namespace shoal::testing {

// Everything sharded that can be, no clipping, so that stage 3 releases every parameter.
inline RunOptions released_at(int stage) {
  RunOptions options;
  options.stage = stage;
  options.clip = false;
  options.persistence_threshold = 0;
  options.overflow_step = -1;
  return options;
}

inline EngineOptions two_groups() {
  EngineOptions options;
  options.groups = {{}, {.lr = 1e-3, .weight_decay = 0.0}};
  options.seed = 5;
  return options;
}

struct MatrixEngine {
  MatrixEngine(Group& world, const RunOptions& options, const EngineOptions& engine_options = two_groups())
      : MatrixEngine(world, config_of(options, world.size()), engine_options) {}
  MatrixEngine(Group& world_in, const Config& config, const EngineOptions& engine_options = two_groups())
      : world(world_in) {
    at::set_num_threads(1);
    engine = std::make_unique<Engine>(model.units(), config, world, engine_options);
  }

  at::Tensor loss(int64_t step, const ForwardOptions& options = {}) {
    return forward(*engine, model, batch_of(step, 0, world.rank()), options);
  }
  StepResult train_step(int64_t step, const ForwardOptions& options = {}) {
    engine->backward(loss(step, options));
    return engine->step();
  }
  // The bytes of all parameters.
  std::string weights() {
    std::string bytes;
    engine->with_gathered(MatrixModel::names(), Access::read, [&] { bytes = plain_weights(); });
    return bytes;
  }
  // The same, of parameters that can be read without an engine.
  std::string plain_weights() const {
    std::string bytes;
    for (const at::Tensor& tensor : model.tensors()) bytes += bytes_of(tensor);
    return bytes;
  }

  Group& world;
  MatrixModel model;
  std::unique_ptr<Engine> engine;
};

}  // namespace shoal::testing
