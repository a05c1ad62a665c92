// Everything that a checkpoint must bring back, as bytes, for comparison between runs of any world size and stage.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shoal/engine.h"
#include "training/matrix_run.h"

namespace shoal::testing {

std::string read_bits(const Engine& engine, const StateRun& run);

// All states of all parameters in one order, put together from what the ranks own. Every rank calls it.
std::string state_bits(const Engine& engine, Group& world);

// What this rank keeps, whether it owns it or not: replicas are restored too.
std::string kept_bits(const Engine& engine);

// The matrix model and its engine, in a run that can be stopped and taken up again.
struct Trainee {
  Trainee(Group& world, const Config& config, uint64_t model_seed = 1, uint64_t engine_seed = 5);

  // Losses, norms, learning rates and loss scales of these steps.
  std::vector<double> train(int from, int to, const RunOptions& options, const std::vector<int>& overflow_steps = {});
  std::string weights();

  Group& world;
  MatrixModel model;
  std::unique_ptr<Engine> engine;
};

}  // namespace shoal::testing
