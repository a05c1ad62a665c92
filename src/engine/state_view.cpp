// See include/shoal/state_view.h. When the state may be read and written is in state_doors.h.
#include "shoal/state_view.h"

#include "engine/engine_impl.h"

namespace shoal {

const std::vector<ParamInfo>& ConstStateView::params() const { return engine_->parts.state_access.params(); }
std::vector<StateRun> ConstStateView::owned() const { return engine_->parts.state_access.owned(); }
std::vector<StateRun> ConstStateView::kept() const { return engine_->parts.state_access.kept(); }
void ConstStateView::read(const StateRun& part, float* values) const { engine_->doors.read(part, values); }
void ConstStateView::check_readable(const std::string& place) const { engine_->doors.check_readable(place); }
std::shared_ptr<std::byte> ConstStateView::picture_memory(size_t nbytes) const {
  return engine_->doors.picture_memory(nbytes);
}

std::vector<StateRun> ConstStateView::owned_gradients() const { return engine_->doors.owned_gradients(); }
void ConstStateView::read_gradient(const StateRun& part, float* values) const {
  engine_->doors.read_gradient(part, values);
}
bool ConstStateView::has_gradients() const { return engine_->training.micro_steps().has_gradients(); }
int64_t ConstStateView::accumulated() const { return engine_->training.micro_steps().count(); }

EngineProgress ConstStateView::progress() const { return engine_->doors.progress(); }
double ConstStateView::loss_scale() const { return engine_->training.loss_scale(); }

void StateView::write(const StateRun& part, const float* values) const { engine_->doors.write(part, values); }
void StateView::finish_restore(const EngineProgress& progress) const { engine_->doors.finish_restore(progress); }
void StateView::edit(const StateRun& part, const float* values) const { engine_->doors.edit(part, values); }
void StateView::finish_edits() const { engine_->doors.publish("finish_edits"); }
std::vector<StateRun> StateView::kept_gradients() const { return engine_->doors.kept_gradients(); }
void StateView::write_gradient(const StateRun& part, const float* values) const {
  engine_->doors.write_gradient(part, values);
}

}  // namespace shoal
