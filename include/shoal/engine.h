// Start here. An Engine trains a libtorch model whose optimizer states, gradients and parameters are sharded over the
// ranks of a Group, by a Config (DeepSpeed's JSON).
//
//   auto config = shoal::Config::from_file("ds_config.json", {.world_size = shoal::world_size_of_environment()});
//   auto world = shoal::make_process_group(shoal::process_group_options(config));
//   shoal::Engine engine(units_of(model), config, *world);
//   for (...) {
//     at::Tensor x = engine.run(0, input, [&](const at::Tensor& t) { return model.embed(t); });
//     ... one run() per unit ...
//     engine.backward(loss);
//     shoal::StepResult result = engine.step();
//   }
//
// One engine belongs to one thread. Calls that communicate must be made by every rank in the same order.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/config.h"
#include "shoal/engine_names_0_1.h"
#include "shoal/group.h"
#include "shoal/hooks_view.h"
#include "shoal/meters_view.h"
#include "shoal/state_view.h"
#include "shoal/step_result.h"
#include "shoal/unit.h"

namespace shoal {

class EngineImpl;

struct EngineOptions {
  at::Device device = at::kCPU;           // where the model lives; see open_device in shoal/device.h
  std::vector<ParamGroup> groups = {{}};  // parameter groups; Parameter::group points here
  uint64_t seed = 0;                      // of the rank's own random generator
  bool broadcast_weights = true;          // every rank starts from rank 0's values; false: they are equal already
  bool backward_from_outside = false;     // loss.backward() trains too, without Engine::backward
  bool watch_nonfinite = true;            // shoal.max_nonfinite is carried out; false: the caller does
};

// What a step takes for a parameter group.
struct GroupValues {
  double lr = 0;
  double weight_decay = 0;
};

// An update from outside, in place of the config's optimizer. It is told what gradients are multiplied by (the loss
// scale and clipping), and may read, write and read_gradient what state().kept() lists of trained weights.
using OutsideUpdate = std::function<void(double grad_scale)>;

enum class Access : uint8_t { read, write };

// What a training loop calls. The rest is in three views: state() reads and writes weights, optimizer states and
// gradients; meters() says what the engine has cost; hooks() is for bindings. (The base holds their names of 0.1.)
class Engine : public EngineNames01<Engine> {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Forward = std::function<Tensors(const Tensors&)>;

  // Takes the model's parameters over. Every rank passes the same units and config; they are compared.
  // The world outlives the engine.
  Engine(std::vector<Unit> units, const Config& config, Group& world, EngineOptions options = {});
  // Gives memory back and communicates nothing. At stage 3 the parameters stay released; another engine built from
  // them adopts their shards, and make_whole() turns them into ordinary tensors. Below stage 3 they stay as they are.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Runs a part of the model that uses this unit's parameters. Everything the unit reads that needs a gradient must
  // be among the inputs, and everything it hands on among the outputs.
  Tensors run(int unit, const Tensors& inputs, const Forward& forward);
  at::Tensor run(int unit, const at::Tensor& input, const std::function<at::Tensor(const at::Tensor&)>& forward);

  // Runs a part of the model (run() calls inside) without keeping its activations; backward runs it again, with the
  // same random numbers. Its inputs are kept; with activation_checkpointing.cpu_checkpointing those that need a
  // gradient are kept in host memory, and come back to a GPU ahead of their use.
  Tensors recompute(const Tensors& inputs, const Forward& forward);
  at::Tensor recompute(const at::Tensor& input, const std::function<at::Tensor(const at::Tensor&)>& forward);

  // A forward without gradients: run() calls inside use the order of evaluation.
  void evaluate(const std::function<void()>& forward);
  // Inside evaluate(): a model leaves out its dropout.
  bool evaluating() const;

  // Back-propagates the loss of this micro-step, divided by the accumulation steps and times the loss scale.
  // After an exception from within the pass it cannot be finished: the engine refuses everything but its destruction.
  void backward(const at::Tensor& loss);
  // Ends the micro-step; at an accumulation boundary clips, updates and brings the new weights to where they are read.
  // With an update from outside, that one makes the new weights, and is not called in a step that is skipped.
  StepResult step(const OutsideUpdate& update = {});
  // The same without waiting for a GPU: there the step is decided and carried out behind the work before it, and its
  // result can be read later. A step that nobody asks for is read at the second boundary after it at the latest, and
  // what reads the state (progress(), loss_scale()) reads it first. It waits all the same for an update from outside,
  // and where the host updates states. The error of a step that cannot go on is thrown where its result is read.
  PendingStep step_later(const OutsideUpdate& update = {});
  // Whether the backwards that follow end a step, told from outside; nothing: by the count of micro-steps.
  void set_boundary(std::optional<bool> is_last);
  // Whether the next backward ends a step.
  bool at_boundary() const;
  // Drops what has come since the last step, on every rank: the next backward begins a step. Not inside a backward.
  void drop_gradients();
  // Learning rates and weight decays of the groups from the next step on, instead of the schedule's and the config's.
  void set_groups(const std::vector<GroupValues>& groups);

  // Calls `use` with the named parameters whole. With Access::write, what rank 0 wrote becomes the value on all ranks.
  // Every rank calls it, between passes.
  void with_gathered(const std::vector<std::string>& names, Access access, const std::function<void()>& use);

  int unit_index(const std::string& name) const;
  // The rank's own random numbers: draw dropout masks from it, so that recompute can repeat them. With the config's
  // shoal.leaf_seed it is seeded as each training pass begins, alike at every number of ranks.
  at::Generator& generator();
  at::Device device() const;
  const Config& config() const;  // with placement "auto": as it was decided

  // Cheap values that refer to this engine, and are used while it lives.
  StateView state();
  ConstStateView state() const;
  MetersView meters() const;
  HooksView hooks();

 private:
  std::unique_ptr<EngineImpl> impl_;
};

// Turns parameters that an engine left released into ordinary, whole tensors. Every rank calls it.
void make_whole(const std::vector<Unit>& units, Group& world);

}  // namespace shoal
