// The engine's front; see include/shoal/engine.h. What it is made of is composed in engine_parts.h, what it does is in
// training.h and state_doors.h, what it has cost in meters.h.
#include "shoal/engine.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/text.h"
#include "device/cuda.h"
#include "engine/auto_placement.h"
#include "engine/engine_parts.h"
#include "engine/meters.h"
#include "engine/out_of_memory.h"
#include "engine/recompute.h"
#include "engine/state_doors.h"
#include "engine/training.h"
#include "engine/user_gathers.h"
#include "shoal/error.h"

namespace shoal {

namespace {

Config placed(const std::vector<Unit>& units, const Config& config, Group& world, const EngineOptions& options) {
  PlacedConfig found = carry_out_placement(config, units, options.groups.size(), world, options.device);
  if (!found.words.empty() && world.rank() == 0) fmt::print(stderr, "shoal: {}\n", found.words);
  return std::move(found.config);
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const std::vector<Unit>& units, const Config& config, Group& world, const EngineOptions& options)
      : parts(units, config, world, options),
        training(parts, gathers, meters, options.backward_from_outside) {}

  ~Impl() { parts.settle(); }  // while what the user gathered is still open

  EngineParts parts;
  UserGathers gathers{parts};
  Meters meters{parts};
  Training training;
  StateDoors doors{parts, gathers, training};
};

Engine::Engine(std::vector<Unit> units, const Config& config, Group& world, EngineOptions options) {
  const Config found = placed(units, config, world, options);
  try {
    impl_ = std::make_unique<Impl>(units, found, world, options);
  } catch (const NoDeviceMemory& error) {  // what the engine had taken is given back
    throw explain(no_room({units, found, options.groups.size(), world.size()}, error.asked(),
                          cuda::facts_of(options.device.index())));
  }
}

Engine::~Engine() = default;

Engine::Tensors Engine::run(int unit, const Tensors& inputs, const Forward& forward) {
  return impl_->training.run(unit, inputs, forward);
}

at::Tensor Engine::run(int unit, const at::Tensor& input, const std::function<at::Tensor(const at::Tensor&)>& forward) {
  return impl_->training.run(unit, {input}, [&](const Tensors& inputs) { return Tensors{forward(inputs.at(0))}; })
      .at(0);
}

void Engine::enter(int unit, const Tensors& inputs) {
  impl_->training.check_use(unit);
  impl_->parts.calls.enter(unit, inputs);
}
void Engine::exit(int unit, const Tensors& outputs) { impl_->parts.calls.exit(unit, outputs); }
void Engine::abandon(int unit) { impl_->parts.calls.abandon(unit); }

void Engine::read_outside_uses(int unit, const Tensors& inputs) {
  impl_->training.check_use(unit);
  impl_->parts.calls.read_outside_uses(unit, inputs);
}
bool Engine::in_backward() const { return impl_->parts.passes.in_backward(); }

void Engine::begin_backward(const at::Tensor& root) { impl_->training.begin_backward(root); }
void Engine::finish_backward() { impl_->training.finish_backward(); }
void Engine::abandon_backward(const std::string& because) { impl_->parts.soundness.backward_failed(because); }
void Engine::expect_scaled_loss() { impl_->training.expect_scaled_loss(); }
void Engine::set_boundary(std::optional<bool> is_last) { impl_->training.micro_steps().tell(is_last); }
bool Engine::at_boundary() const { return impl_->training.micro_steps().next_ends_step(); }

void Engine::set_betas(double beta1, double beta2) { impl_->parts.stepper.set_betas(beta1, beta2); }
void Engine::set_groups(const std::vector<GroupValues>& groups) { impl_->parts.stepper.set_groups(groups); }

Engine::Tensors Engine::recompute(const Tensors& inputs, const Forward& forward) {
  return shoal::recompute({impl_->parts.passes, impl_->parts.generator, impl_->parts.host_inputs.get()}, inputs,
                          forward);
}

at::Tensor Engine::recompute(const at::Tensor& input, const std::function<at::Tensor(const at::Tensor&)>& forward) {
  return recompute(Tensors{input}, [forward](const Tensors& inputs) { return Tensors{forward(inputs.at(0))}; }).at(0);
}

void Engine::evaluate(const std::function<void()>& forward) { impl_->training.evaluate(forward); }

bool Engine::evaluating() const { return impl_->parts.passes.evaluating(); }

void Engine::backward(const at::Tensor& loss) { impl_->training.backward(loss); }

StepResult Engine::step(const OutsideUpdate& update) { return step_later(update).result(); }
PendingStep Engine::step_later(const OutsideUpdate& update) { return impl_->training.step_later(update); }

void Engine::with_gathered(const std::vector<std::string>& names, Access access, const std::function<void()>& use) {
  impl_->gathers.with_gathered(names, access, use);
}

int Engine::begin_gathered(const std::vector<std::string>& names) { return impl_->gathers.begin(names); }
void Engine::finish_gathered(int id, std::optional<int> written_by) { impl_->gathers.finish(id, written_by); }

const std::vector<ParamInfo>& Engine::params() const { return impl_->parts.state_access.params(); }
std::vector<StateRun> Engine::owned_state() const { return impl_->parts.state_access.owned(); }
std::vector<StateRun> Engine::kept_state() const { return impl_->parts.state_access.kept(); }

void Engine::read_state(const StateRun& part, float* values) const { impl_->doors.read(part, values); }

void Engine::write_state(const StateRun& part, const float* values) { impl_->doors.write(part, values); }

void Engine::edit_state(const StateRun& part, const float* values) { impl_->doors.edit(part, values); }

void Engine::finish_edits() { impl_->doors.publish("finish_edits"); }

std::vector<StateRun> Engine::owned_gradients() { return impl_->doors.owned_gradients(); }
std::vector<StateRun> Engine::kept_gradients() { return impl_->doors.kept_gradients(); }
void Engine::read_gradient(const StateRun& part, float* values) const {
  impl_->parts.state_access.read_gradient(part, impl_->parts.gradients, values);
}
void Engine::write_gradient(const StateRun& part, const float* values) { impl_->doors.write_gradient(part, values); }

void Engine::check_readable(const std::string& place) const { impl_->doors.check_readable(place); }
int64_t Engine::accumulated() const { return impl_->training.micro_steps().count(); }
bool Engine::has_gradients() const { return impl_->training.micro_steps().has_gradients(); }
void Engine::drop_gradients() { impl_->training.drop_gradients(); }
EngineProgress Engine::progress() const { return impl_->doors.progress(); }
void Engine::finish_restore(const EngineProgress& progress) { impl_->doors.finish_restore(progress); }

int Engine::unit_index(const std::string& name) const {
  const std::vector<UnitLayout>& units = impl_->parts.layout.units;
  std::vector<std::string> names;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    if (units[unit].name == name) return static_cast<int>(unit);
    names.push_back(units[unit].name);
  }
  const std::string near = nearest_word(name, names);
  throw Error("engine",
              fmt::format("there is no unit {}.{}", name, near.empty() ? "" : fmt::format(" Did you mean {}?", near)));
}

at::Device Engine::device() const { return impl_->parts.device; }
at::Generator& Engine::generator() { return impl_->parts.generator; }
double Engine::loss_scale() const { return impl_->training.loss_scale(); }
MemoryReport Engine::memory() const { return impl_->meters.memory(); }
Error Engine::explain_out_of_memory(const std::string& phase, const std::string& said) const {
  return explain(impl_->training.out_of_memory(phase, said));
}
Traffic Engine::traffic() const { return impl_->meters.traffic(); }
double Engine::waited_seconds() const { return impl_->meters.waited_seconds(); }
DiskTraffic Engine::disk() const { return impl_->meters.disk(); }
HostTraffic Engine::host() const { return impl_->meters.host(); }
const Config& Engine::config() const { return impl_->parts.config; }

}  // namespace shoal
