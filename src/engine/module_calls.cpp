// See module_calls.h.
#include "engine/module_calls.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/check.h"

namespace shoal {

void ModuleCalls::enter(int unit, const std::vector<at::Tensor>& inputs) {
  const Kind kind = enter_as(unit, inputs);
  uses_.push_back({unit, kind});
}

ModuleCalls::Kind ModuleCalls::enter_as(int unit, const std::vector<at::Tensor>& inputs) {
  passes_.notice_running_backward();
  if (passes_.in_backward()) return passes_.enter_repeated(unit, inputs) ? Kind::repeated : Kind::repeated_graph;
  if (passes_.evaluating() || at::GradMode::is_enabled()) {
    passes_.enter(unit, inputs);
    return Kind::plain;
  }
  if (!passes_.between_passes()) {
    passes_.enter_without_graph(unit);
    return Kind::without_graph;
  }
  passes_.begin_evaluation();
  try {
    passes_.enter(unit, inputs);
  } catch (const std::exception& error) {  // some ranks may be inside by now, and this one is not
    passes_.lose(fmt::format("an evaluation could not begin: {}", error.what()));
    throw;
  }
  return Kind::evaluation;
}

void ModuleCalls::read_outside_uses(int unit, const std::vector<at::Tensor>& inputs) {
  if (!passes_.in_backward()) enter(unit, inputs);
  if (!passes_.evaluating()) passes_.read_outside_uses(unit);
}

void ModuleCalls::exit(int unit, const std::vector<at::Tensor>& outputs) {
  SHOAL_CHECK(!uses_.empty() && uses_.back().unit == unit, "unit {} is left and not the last that was entered", unit);
  const Use use = uses_.back();
  uses_.pop_back();
  leave(use, &outputs);
}

void ModuleCalls::abandon(int unit) {
  bool entered = false;
  for (const Use& use : uses_) entered |= use.unit == unit;
  while (entered) {  // uses inside it were left without a word
    const Use use = uses_.back();
    uses_.pop_back();
    leave(use, nullptr);
    if (use.unit == unit) return;
  }
}

void ModuleCalls::leave(const Use& use, const std::vector<at::Tensor>* outputs) {
  switch (use.kind) {
    case Kind::plain:
    case Kind::evaluation:
      if (outputs != nullptr) {
        passes_.exit(use.unit, *outputs);
      } else {
        passes_.abandon(use.unit);
      }
      if (use.kind == Kind::evaluation) passes_.finish_evaluation();
      break;
    case Kind::without_graph: passes_.exit_without_graph(use.unit); break;
    case Kind::repeated: passes_.exit_repeated(use.unit); break;
    case Kind::repeated_graph: break;
  }
}

}  // namespace shoal
