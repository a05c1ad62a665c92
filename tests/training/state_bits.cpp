// See state_bits.h.
#include "training/state_bits.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

#include "checkpoint/exchange.h"

namespace shoal::testing {

std::string read_bits(const Engine& engine, const StateRun& run) {
  std::vector<float> values(static_cast<size_t>(run.numel));
  engine.state().read(run, values.data());
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::string state_bits(const Engine& engine, Group& world) {
  std::string mine;
  for (const StateRun& run : engine.state().owned()) {
    const int64_t head[] = {run.param, static_cast<int64_t>(run.kind), run.begin, run.numel};
    mine.append(reinterpret_cast<const char*>(head), sizeof(head));
    mine += read_bits(engine, run);
  }
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::string> runs;
  for (const std::string& text : checkpoint::gather_texts(world, {"gather", "state bits"}, mine)) {
    for (size_t at = 0; at < text.size();) {
      int64_t head[4];
      std::memcpy(head, text.data() + at, sizeof(head));
      const size_t nbytes = static_cast<size_t>(head[3]) * sizeof(float);
      runs[{head[0], head[1], head[2]}] = text.substr(at + sizeof(head), nbytes);
      at += sizeof(head) + nbytes;
    }
  }
  std::string bits;
  for (const auto& [place, values] : runs) bits += values;
  return bits;
}

std::string kept_bits(const Engine& engine) {
  std::string bits;
  for (const StateRun& run : engine.state().kept()) bits += read_bits(engine, run);
  return bits;
}

Trainee::Trainee(Group& world_in, const Config& config, uint64_t model_seed, uint64_t engine_seed)
    : world(world_in), model(model_seed) {
  at::set_num_threads(1);
  EngineOptions options;
  options.groups = {{}, {.lr = 1e-3, .weight_decay = 0.0}};
  options.seed = engine_seed;
  engine = std::make_unique<Engine>(model.units(), config, world, options);
}

std::vector<double> Trainee::train(int from, int to, const RunOptions& options,
                                   const std::vector<int>& overflow_steps) {
  std::vector<double> record;
  for (int step = from; step < to; ++step) {
    const bool uses = !options.skip_units || (step + world.rank()) % 3 != 0;
    at::Tensor loss = forward(*engine, model, batch_of(step, 0, world.rank()), {options.dropout, false, uses});
    for (const int overflow : overflow_steps) {
      if (step == overflow) loss = loss * INFINITY;
    }
    record.push_back(loss.item<double>());
    engine->backward(loss);
    const StepResult result = engine->step();
    record.insert(record.end(), {result.grad_norm, result.loss_scale, result.applied ? 1.0 : 0.0});
    record.insert(record.end(), result.lrs.begin(), result.lrs.end());
  }
  return record;
}

std::string Trainee::weights() {
  std::string bytes;
  engine->with_gathered(MatrixModel::names(), Access::read, [&] {
    for (const at::Tensor& tensor : model.tensors()) {
      bytes.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
    }
  });
  return bytes;
}

}  // namespace shoal::testing
