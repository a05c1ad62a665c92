// See include/shoal/hooks_view.h. Which kind of use a call of a module is, is found out in module_calls.h.
#include "shoal/hooks_view.h"

#include <utility>

#include "base/mix.h"
#include "engine/engine_impl.h"

namespace shoal {

void HooksView::enter(int unit, const Tensors& inputs) const {
  engine_->training.check_use(unit);
  engine_->parts.calls.enter(unit, inputs);
}
void HooksView::exit(int unit, const Tensors& outputs) const { engine_->parts.calls.exit(unit, outputs); }
void HooksView::abandon(int unit) const { engine_->parts.calls.abandon(unit); }
void HooksView::read_outside_uses(int unit, const Tensors& inputs) const {
  engine_->training.check_use(unit);
  engine_->parts.calls.read_outside_uses(unit, inputs);
}

double HooksView::begin_backward(const at::Tensor& root, bool engine_divides) const {
  return engine_->training.begin_backward(root, !engine_divides);
}
void HooksView::finish_backward() const { engine_->training.finish_backward(); }
void HooksView::abandon_backward(const std::string& because) const {
  engine_->parts.soundness.backward_failed(because);
}
bool HooksView::in_backward() const { return engine_->parts.passes.in_backward(); }
void HooksView::expect_scaled_loss() const { engine_->training.expect_scaled_loss(); }

void HooksView::check_unchanged() const { engine_->parts.weights.check_unchanged(); }

int HooksView::begin_gathered(const std::vector<std::string>& names) const { return engine_->gathers.begin(names); }
void HooksView::finish_gathered(int id, std::optional<int> written_by) const {
  engine_->gathers.finish(id, written_by);
}

std::optional<uint64_t> HooksView::leaf_seed(int64_t forward) const {
  const std::optional<uint64_t> seed = engine_->training.next_leaf_seed();
  return seed && forward > 0 ? mixed(*seed, static_cast<uint64_t>(forward)) : seed;
}

void HooksView::run_leaf(std::optional<int64_t> leaf) const { engine_->training.run_leaf(leaf); }
void HooksView::watch_gradients(GradientWatch watch) const {
  engine_->parts.passes.when_gradient_comes(std::move(watch));
}

void HooksView::set_betas(double beta1, double beta2) const { engine_->parts.stepper.set_betas(beta1, beta2); }

}  // namespace shoal
