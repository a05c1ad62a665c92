// See state_doors.h.
#include "engine/state_doors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "shoal/error.h"

namespace shoal {

void StateDoors::check_between_steps(const std::string& place) {
  parts_.check_sound(place);
  if (parts_.passes.between_passes() && training_.micro_steps().count() == 0 && !gathers_.inside()) return;
  throw Error(place, "a step is under way. Read and write the state after step(), before the next forward.");
}

void StateDoors::check_readable(const std::string& place) {
  parts_.check_sound(place);
  if (parts_.passes.between_passes() && !gathers_.inside()) return;
  throw Error(place,
              gathers_.inside()
                  ? "parameters are gathered for the user. Leave with_gathered first."
                  : "a pass is open: its forward ran and its backward did not. Call backward first, or run a forward "
                    "that has none without gradients (torch.no_grad).");
}

void StateDoors::read(const StateRun& part, float* values) {
  check_readable("read_state");
  parts_.state_access.check_unchanged(part);
  parts_.stepper.settle_all();
  parts_.state_access.read(part, values);
}

void StateDoors::write(const StateRun& part, const float* values) {
  check_between_steps("write_state");
  parts_.state_access.check_unchanged(part);
  parts_.stepper.settle_all();
  parts_.state_access.write(part, values);
}

void StateDoors::edit(const StateRun& part, const float* values) {
  check_readable("edit_state");
  parts_.state_access.check_unchanged(part);
  parts_.stepper.settle_all();  // nothing counts that was updated with the old one
  parts_.state_access.write(part, values);
}

std::shared_ptr<std::byte> StateDoors::picture_memory(size_t nbytes) {
  const std::shared_ptr<Slab> slab = parts_.queue->allocate_host(nbytes, parts_.ledger, MemoryKind::save_pictures);
  return {slab, slab->data()};
}

void StateDoors::publish(const std::string& place) {
  check_readable(place);
  parts_.stepper.settle_all();
  parts_.weights.empty_second_copies();
  parts_.gradients.forget_errors();
  for (int unit = 0; unit < static_cast<int>(parts_.layout.units.size()); ++unit) parts_.weights.publish(unit);
  parts_.weights.finish_publish();
}

std::vector<StateRun> StateDoors::trained_weights(std::vector<StateRun> runs) const {
  std::erase_if(runs, [&](const StateRun& run) {
    return run.kind != StateKind::weight || !parts_.state_access.params()[static_cast<size_t>(run.param)].trainable;
  });
  return runs;
}

std::vector<StateRun> StateDoors::owned_gradients() {
  training_.await_gradients();
  return trained_weights(parts_.state_access.owned());
}

std::vector<StateRun> StateDoors::kept_gradients() {
  training_.await_gradients();
  return trained_weights(parts_.state_access.kept());
}

void StateDoors::read_gradient(const StateRun& part, float* values) {
  if (!training_.updating_outside()) training_.await_gradients();
  parts_.state_access.read_gradient(part, parts_.gradients, values);
}

void StateDoors::write_gradient(const StateRun& part, const float* values) {
  training_.await_gradients();
  parts_.stepper.settle_all();  // nothing counts that was updated with the old one
  parts_.state_access.write_gradient(part, values, parts_.gradients);
}

EngineProgress StateDoors::progress() {
  training_.read_all_steps();
  EngineProgress progress;
  parts_.stepper.save(progress);
  const at::Tensor state = parts_.generator.get_state();
  progress.random_state.assign(state.const_data_ptr<uint8_t>(), state.const_data_ptr<uint8_t>() + state.numel());
  return progress;
}

void StateDoors::finish_restore(const EngineProgress& progress) {
  check_between_steps("finish_restore");
  publish("finish_restore");
  training_.read_all_steps();
  parts_.stepper.restore(progress);
  if (progress.random_state.empty() || parts_.config.shoal.leaf_seed >= 0) return;  // each leaf seeds anew
  const at::Tensor state = parts_.generator.get_state();
  if (progress.random_state.size() != static_cast<size_t>(state.numel())) {
    if (parts_.rank() == 0) {
      fmt::print(stderr,
                 "shoal: the saved random numbers are of another kind of device; they begin anew from the seed\n");
    }
    return;
  }
  std::copy(progress.random_state.begin(), progress.random_state.end(), state.mutable_data_ptr<uint8_t>());
  parts_.generator.set_state(state);
}

}  // namespace shoal
