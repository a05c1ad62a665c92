// See step_watch.h.
#include "engine/step_watch.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <utility>

#include "shoal/error.h"

namespace shoal {

void StepWatch::add_loss(const at::Tensor& loss) {
  if (!on_ || !knows_all_) return;
  if (!loss.defined() || loss.numel() != 1) return forget_losses();
  const auto on_host = loss.options().device(at::kCPU).requires_grad(false).pinned_memory(loss.is_cuda());
  losses_.push_back(at::empty(loss.sizes(), on_host));
  losses_.back().copy_(loss.detach(), /*non_blocking=*/true);
}

void StepWatch::forget_losses() {
  losses_.clear();
  knows_all_ = false;
}

std::vector<at::Tensor> StepWatch::take_losses() {
  knows_all_ = true;
  return std::exchange(losses_, {});
}

void StepWatch::see(const StepResult& result, const std::vector<at::Tensor>& losses) {
  if (!on_) return;
  std::optional<double> mean;
  if (!losses.empty()) {
    double sum = 0;
    for (const at::Tensor& loss : losses) sum += loss.item<double>();
    mean = sum / static_cast<double>(losses.size());
  }
  steps_.see(outcome_of(result.applied_steps + result.skipped_steps, result, mean));
  if (!steps_.too_many()) return;
  throw Error("step", fmt::format("{} So many in a row end a run (shoal.max_nonfinite {}; 0: none do).",
                                  steps_.describe(), steps_.most()));
}

}  // namespace shoal
