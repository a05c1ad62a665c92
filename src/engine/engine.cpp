// The engine's front; see include/shoal/engine.h. What it is made of is composed in engine_impl.h and engine_parts.h,
// what it does is in training.h. The other doors are its views: state_view.cpp, meters_view.cpp, hooks_view.cpp.
#include "shoal/engine.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/text.h"
#include "device/cuda.h"
#include "engine/auto_placement.h"
#include "engine/engine_impl.h"
#include "engine/out_of_memory.h"
#include "engine/recompute.h"
#include "shoal/error.h"

namespace shoal {

namespace {

Config placed(const std::vector<Unit>& units, const Config& config, Group& world, const EngineOptions& options) {
  PlacedConfig found = carry_out_placement(config, units, options.groups.size(), world, options.device);
  if (!found.words.empty() && world.rank() == 0) fmt::print(stderr, "shoal: {}\n", found.words);
  return std::move(found.config);
}

}  // namespace

Engine::Engine(std::vector<Unit> units, const Config& config, Group& world, EngineOptions options) {
  const Config found = placed(units, config, world, options);
  try {
    impl_ = std::make_unique<EngineImpl>(units, found, world, options);
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

Engine::Tensors Engine::recompute(const Tensors& inputs, const Forward& forward) {
  impl_->training.begin_leaf();  // before the region remembers what it will draw
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
void Engine::set_boundary(std::optional<bool> is_last) { impl_->training.micro_steps().tell(is_last); }
bool Engine::at_boundary() const { return impl_->training.micro_steps().next_ends_step(); }
void Engine::drop_gradients() { impl_->training.drop_gradients(); }
void Engine::set_groups(const std::vector<GroupValues>& groups) { impl_->parts.stepper.set_groups(groups); }

void Engine::with_gathered(const std::vector<std::string>& names, Access access, const std::function<void()>& use) {
  impl_->gathers.with_gathered(names, access, use);
}

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

at::Generator& Engine::generator() { return impl_->parts.generator; }
at::Device Engine::device() const { return impl_->parts.device; }
const Config& Engine::config() const { return impl_->parts.config; }

StateView Engine::state() { return StateView(*impl_); }
ConstStateView Engine::state() const { return ConstStateView(*impl_); }
MetersView Engine::meters() const { return MetersView(*impl_); }
HooksView Engine::hooks() { return HooksView(*impl_); }

}  // namespace shoal
