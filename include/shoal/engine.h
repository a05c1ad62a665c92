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
#include <utility>
#include <vector>

#include "shoal/config.h"
#include "shoal/engine_state.h"
#include "shoal/error.h"
#include "shoal/group.h"
#include "shoal/memory_plan.h"
#include "shoal/unit.h"

namespace shoal {

struct EngineOptions {
  at::Device device = at::kCPU;           // where the model lives; see open_device in shoal/device.h
  std::vector<ParamGroup> groups = {{}};  // parameter groups; Parameter::group points here
  uint64_t seed = 0;                      // of the rank's own random generator
  bool broadcast_weights = true;          // every rank starts from rank 0's values; false: they are equal already
  bool backward_from_outside = false;     // loss.backward() trains too, without Engine::backward
};

struct StepResult {
  bool boundary = false;      // false: one more micro-step to accumulate; no norm, nothing applied
  bool applied = false;       // false at a boundary: skipped, a gradient was not finite
  double grad_norm = 0;       // global L2 norm before clipping, without the loss scale
  double loss_scale = 1;      // that this step was taken with
  std::vector<double> lrs;    // of each parameter group, that this step was taken with
  int64_t applied_steps = 0;  // so far
  int64_t skipped_steps = 0;  // so far
  std::string overflow_unit;  // where a gradient was not finite
};

// A step whose result is read when somebody asks for it. See Engine::step_later.
class PendingStep {
 public:
  // Whether result() would return at once.
  bool known() const;
  // Waits until the step is decided. Throws what Engine::step would have thrown. The engine lives, or the result was
  // read before.
  const StepResult& result() const;

  struct State;
  explicit PendingStep(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;  // shared with the engine, which reads the results of steps in their order
};

struct MemoryReport {
  MemoryPlan planned;
  MemoryPlan held;              // now, by the ledger
  size_t user_gathered = 0;     // held by with_gathered, now
  size_t host_activations = 0;  // host memory for the inputs of recomputed regions, of a rank with a GPU
};

// What a step takes for a parameter group.
struct GroupValues {
  double lr = 0;
  double weight_decay = 0;
};

// An update from outside, in place of the config's optimizer. It is told what gradients are multiplied by (the loss
// scale and clipping), and may read_gradient, read_state and write_state what kept_state() lists of trained weights.
using OutsideUpdate = std::function<void(double grad_scale)>;

enum class Access : uint8_t { read, write };

// Between this rank and its disk tier.
struct DiskTraffic {
  uint64_t read_nbytes = 0;
  uint64_t written_nbytes = 0;
  double waited_seconds = 0;  // for what could not hide
};

// Between this rank's GPU and host memory: bytes of states that live there, and waits for states, gradients, weights.
struct HostTraffic {
  uint64_t to_device_nbytes = 0;
  uint64_t to_host_nbytes = 0;
  double waited_seconds = 0;       // the GPU, for what could not hide; known one or two steps later
  int64_t host_updated_numel = 0;  // elements that the host updates in a step, in place of this GPU or beside it
  // With speculative_update, in all steps: elements that the host updated before the step was decided, and those of
  // them that were not to be updated again.
  int64_t ahead_numel = 0, taken_ahead_numel = 0;
};

class Engine {
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

  // run() in two halves, for hooks on modules. Unlike run(), the outermost use without gradients is an evaluation of
  // its own, and forwards that torch.utils.checkpoint repeats are understood.
  void enter(int unit, const Tensors& inputs);
  void exit(int unit, const Tensors& outputs);
  // Instead of exit(), when the use ended with an exception.
  void abandon(int unit);
  // A parameter of the unit is read, and no use of the unit is open: it becomes live, in forward until its
  // exit(), in backward until backward is over. The inputs are those of the use that is open.
  void read_outside_uses(int unit, const Tensors& inputs);
  // Between begin_backward() and its end.
  bool in_backward() const;

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
  // After an exception the pass cannot be finished: the engine refuses everything but its destruction.
  void backward(const at::Tensor& loss);
  // backward() in two halves: between them the caller back-propagates what it likes, scaled by loss_scale(). With
  // `root` it is that alone, once, and reductions go on beside it; without, they begin in finish_backward().
  void begin_backward(const at::Tensor& root = {});
  void finish_backward();
  // Instead of finish_backward(), when the caller's backward ended with an exception: the engine goes no further.
  void abandon_backward(const std::string& because);
  // With backward_from_outside: the loss that is back-propagated next was multiplied by loss_scale(). What comes from
  // outside is divided by the accumulation steps as it comes.
  void expect_scaled_loss();
  // Whether the backwards that follow end a step, told from outside; nothing: by the count of micro-steps.
  void set_boundary(std::optional<bool> is_last);
  // Whether the next backward ends a step.
  bool at_boundary() const;
  // Learning rates and weight decays of the groups from the next step on, instead of the schedule's and the config's.
  void set_groups(const std::vector<GroupValues>& groups);
  // Adam's and Lion's betas from the next step on, instead of the schedule's and the config's.
  void set_betas(double beta1, double beta2);
  // Ends the micro-step; at an accumulation boundary clips, updates and brings the new weights to where they are read.
  // With an update from outside, that one makes the new weights, and is not called in a step that is skipped.
  StepResult step(const OutsideUpdate& update = {});
  // The same without waiting for a GPU: there the step is decided and carried out behind the work before it, and its
  // result can be read later. A step that nobody asks for is read at the second boundary after it at the latest, and
  // what reads the state (progress(), loss_scale()) reads it first. It waits all the same for an update from outside,
  // and where the host updates states. The error of a step that cannot go on is thrown where its result is read.
  PendingStep step_later(const OutsideUpdate& update = {});

  // Calls `use` with the named parameters whole. With Access::write, what rank 0 wrote becomes the value on all ranks.
  // Every rank calls it, between passes.
  void with_gathered(const std::vector<std::string>& names, Access access, const std::function<void()>& use);

  // The same in two halves, which may nest and may stay open while units that are whole are used. `written_by`: the
  // rank whose values all take.
  int begin_gathered(const std::vector<std::string>& names);
  void finish_gathered(int id, std::optional<int> written_by = {});

  // The state, for checkpoints. owned_state() of all ranks is disjoint and covers everything: what this rank saves.
  // kept_state() is what it holds and must be given: what it loads. It is read between passes, also between the
  // micro-steps of a step, when it is that of the last step; it is written between steps.
  const std::vector<ParamInfo>& params() const;
  std::vector<StateRun> owned_state() const;
  std::vector<StateRun> kept_state() const;
  // Throws unless it can be read now. Talks to nobody.
  void check_readable(const std::string& place) const;
  // Micro-steps that have been accumulated since the last step. What is saved now does not hold them.
  int64_t accumulated() const;
  // Whether the last backward ended a step, and step() has not been called since.
  bool has_gradients() const;
  // Drops what has come since the last step, on every rank: the next backward begins a step. Not inside a backward.
  void drop_gradients();
  // Any part of such a run.
  void read_state(const StateRun& part, float* values) const;
  void write_state(const StateRun& part, const float* values);
  // A state of one parameter, changed by hand, also between the micro-steps of a step: gradients that have come stay as
  // they are, and the step is taken from what was written. Every rank then calls finish_edits, once for any number.
  void edit_state(const StateRun& part, const float* values);
  void finish_edits();
  // The mean gradients that this rank holds, with the loss scale; after the backward that ends a step, before step().
  // read_gradient() also takes what kept_state() lists of trained weights, inside an OutsideUpdate.
  std::vector<StateRun> owned_gradients();
  void read_gradient(const StateRun& part, float* values) const;
  // Puts other gradients in their place, with the loss scale, for the norm and the update of the step: each rank writes
  // any part of what kept_gradients() lists. The same time.
  std::vector<StateRun> kept_gradients();
  void write_gradient(const StateRun& part, const float* values);
  EngineProgress progress() const;
  // Ends a restore: brings the written weights to where they are read. Every rank calls it.
  void finish_restore(const EngineProgress& progress);

  at::Device device() const;
  int unit_index(const std::string& name) const;
  // The rank's own random numbers: draw dropout masks from it, so that recompute can repeat them.
  at::Generator& generator();
  double loss_scale() const;
  MemoryReport memory() const;
  // Bytes sent and received so far, weights and gradients together.
  Traffic traffic() const;
  // Seconds that this rank's threads and its GPU have spent waiting for communication so far; what the GPU waited is
  // known one or two steps later.
  double waited_seconds() const;
  // What offloaded states have cost so far.
  DiskTraffic disk() const;
  // For whoever runs passes by enter() and exit(): what torch said when the GPU's memory was full, with the unit at
  // work, what the states take, and what would help. run() and backward() throw it themselves.
  Error explain_out_of_memory(const std::string& phase, const std::string& said) const;
  HostTraffic host() const;
  const Config& config() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Turns parameters that an engine left released into ordinary, whole tensors. Every rank calls it.
void make_whole(const std::vector<Unit>& units, Group& world);

}  // namespace shoal
