// See matrix_engine.h.
#include "training/matrix_engine.h"

#include <ATen/Parallel.h>

namespace shoal::testing {

RunOptions released_at(int stage) {
  RunOptions options;
  options.stage = stage;
  options.clip = false;
  options.persistence_threshold = 0;
  options.overflow_step = -1;
  return options;
}

EngineOptions two_groups() {
  EngineOptions options;
  options.groups = {{}, {.lr = 1e-3, .weight_decay = 0.0}};
  options.seed = 5;
  return options;
}

MatrixEngine::MatrixEngine(Group& world, const RunOptions& options, const EngineOptions& engine_options)
    : MatrixEngine(world, config_of(options, world.size()), engine_options) {}

MatrixEngine::MatrixEngine(Group& world_in, const Config& config, const EngineOptions& engine_options)
    : world(world_in) {
  at::set_num_threads(1);
  engine = std::make_unique<Engine>(model.units(), config, world, engine_options);
}

at::Tensor MatrixEngine::loss(int64_t step, const ForwardOptions& options) {
  return forward(*engine, model, batch_of(step, 0, world.rank()), options);
}

StepResult MatrixEngine::train_step(int64_t step, const ForwardOptions& options) {
  engine->backward(loss(step, options));
  return engine->step();
}

std::string MatrixEngine::weights() {
  std::string bytes;
  engine->with_gathered(MatrixModel::names(), Access::read, [&] { bytes = plain_weights(); });
  return bytes;
}

std::string MatrixEngine::plain_weights() const {
  std::string bytes;
  for (const at::Tensor& tensor : model.tensors()) bytes += bytes_of(tensor);
  return bytes;
}

}  // namespace shoal::testing
