// See group_steps.h.
#include "optim/group_steps.h"

#include <algorithm>
#include <utility>

namespace shoal {

bool are_same(const GroupSteps& a, const GroupSteps& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& steps) {
        const auto& others = std::get<std::decay_t<decltype(steps)>>(b);
        return std::equal(steps.begin(), steps.end(), others.begin(), others.end(),
                          [](const auto& x, const auto& y) { return x.fields() == y.fields(); });
      },
      a);
}

GroupSteps group_steps(const OptimizerConfig& config, const StepNumbers& numbers) {
  OptimizerConfig now = config;
  now.beta1 = numbers.beta1;
  now.beta2 = numbers.beta2;
  GroupSteps all;
  kernels::EveryStep::call_for(config.kind, [&](auto step) {
    std::vector<decltype(step)> steps;
    for (size_t group = 0; group < numbers.lrs.size(); ++group) {
      step.grad_scale = static_cast<float>(numbers.grad_scale);
      step.lr = static_cast<float>(numbers.lrs[group]);
      step.weight_decay = static_cast<float>(numbers.weight_decays.at(group));
      step.set_constants(now, numbers.step);
      steps.push_back(step);
    }
    all = std::move(steps);
  });
  return all;
}

StepChoices step_choices(const OptimizerConfig& config, int64_t first_steps_before,
                         const std::vector<StepNumbers>& numbers) {
  StepChoices choices{first_steps_before, static_cast<int64_t>(numbers.size()), group_steps(config, numbers.at(0))};
  std::visit(
      [&](auto& all) {
        for (size_t index = 1; index < numbers.size(); ++index) {
          const auto more = std::get<std::decay_t<decltype(all)>>(group_steps(config, numbers[index]));
          all.insert(all.end(), more.begin(), more.end());
        }
      },
      choices.steps);
  return choices;
}

}  // namespace shoal
