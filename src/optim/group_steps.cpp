// See group_steps.h.
#include "optim/group_steps.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace shoal {

namespace {

// Every field: a struct with one more does not compile here.
auto fields_of(const kernels::AdamStep& step) {
  const auto& [scale, lr, beta1, beta2, eps, decay, decoupled, inv_bias1, inv_sqrt_bias2] = step;
  return std::tuple(scale, lr, beta1, beta2, eps, decay, decoupled, inv_bias1, inv_sqrt_bias2);
}
auto fields_of(const kernels::SgdStep& step) {
  const auto& [scale, lr, momentum, dampening, decay, nesterov, first_step] = step;
  return std::tuple(scale, lr, momentum, dampening, decay, nesterov, first_step);
}
auto fields_of(const kernels::AdagradStep& step) {
  const auto& [scale, lr, eps, decay] = step;
  return std::tuple(scale, lr, eps, decay);
}
auto fields_of(const kernels::LionStep& step) {
  const auto& [scale, lr, beta1, beta2, decay] = step;
  return std::tuple(scale, lr, beta1, beta2, decay);
}

}  // namespace

bool are_same(const GroupSteps& a, const GroupSteps& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& steps) {
        const auto& others = std::get<std::decay_t<decltype(steps)>>(b);
        return std::equal(steps.begin(), steps.end(), others.begin(), others.end(),
                          [](const auto& x, const auto& y) { return fields_of(x) == fields_of(y); });
      },
      a);
}

GroupSteps group_steps(const OptimizerConfig& config, const StepNumbers& numbers) {
  const auto of_groups = [&](auto step, const auto& finish) {
    std::vector<decltype(step)> steps;
    for (size_t group = 0; group < numbers.lrs.size(); ++group) {
      step.grad_scale = static_cast<float>(numbers.grad_scale);
      step.lr = static_cast<float>(numbers.lrs[group]);
      step.weight_decay = static_cast<float>(numbers.weight_decays.at(group));
      finish(step);
      steps.push_back(step);
    }
    return steps;
  };
  switch (config.kind) {
    case OptimizerKind::sgd:
      return of_groups(kernels::SgdStep{}, [&](kernels::SgdStep& step) {
        step.momentum = static_cast<float>(config.momentum);
        step.dampening = static_cast<float>(config.dampening);
        step.nesterov = config.nesterov;
        step.first_step = numbers.step == 1;
      });
    case OptimizerKind::adagrad:
      return of_groups(kernels::AdagradStep{},
                       [&](kernels::AdagradStep& step) { step.eps = static_cast<float>(config.eps); });
    case OptimizerKind::lion:
      return of_groups(kernels::LionStep{}, [&](kernels::LionStep& step) {
        step.beta1 = static_cast<float>(numbers.beta1);
        step.beta2 = static_cast<float>(numbers.beta2);
      });
    case OptimizerKind::adamw:
    case OptimizerKind::adam: break;
  }
  return of_groups(kernels::AdamStep{}, [&](kernels::AdamStep& step) {
    step.beta1 = static_cast<float>(numbers.beta1);
    step.beta2 = static_cast<float>(numbers.beta2);
    step.eps = static_cast<float>(config.eps);
    step.decoupled = config.kind == OptimizerKind::adamw;
    if (!config.bias_correction) return;
    // Of the fp32 betas that the moments are made with: 1 - 0.999 is 1.3e-5 of itself away from 1 - 0.999f, and the
    // first steps would be 6e-6 of themselves too long.
    const auto t = static_cast<double>(numbers.step);
    step.inv_bias1 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(step.beta1), t)));
    step.inv_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(step.beta2), t)));
  });
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
