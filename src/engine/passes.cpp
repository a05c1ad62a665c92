// See passes.h.
#include "engine/passes.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "shoal/error.h"

namespace shoal {

namespace {

std::vector<bool> units_with_gradients(const ModelLayout& layout) {
  std::vector<bool> has;
  for (const UnitLayout& unit : layout.units) {
    has.push_back(
        std::any_of(unit.flats.begin(), unit.flats.end(), [](const FlatLayout& flat) { return flat.trainable; }));
  }
  return has;
}

}  // namespace

Passes::Passes(const ModelLayout& layout, const PassOptions& options, Weights& weights, Gradients& gradients,
               Group& weights_channel, Group& gradients_channel)
    : layout_(layout),
      options_(options),
      gradients_(gradients),
      gradients_channel_(gradients_channel),
      gathers_(layout, {.stage = options.stage, .limits = options.gather, .overlap = options.overlap}, weights,
               weights_channel,
               {.needed = [this](int unit) { need(unit); },
                .released = [this](int unit) { reduce_if_left_out(unit); },
                // See [Note: why a skipped unit is passed by before its reduction].
                .ranks_differ = [this] { gradients_.grow_slots(); },
                .lost = [this](const std::string& because) { lose(because); }}),
      reduce_order_(units_with_gradients(layout)),
      units_(layout.units.size()) {
  hooks_.skip_while([this] { return runs_aside(); });
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    for (const FlatLayout& flat : layout_.units[unit].flats) {
      if (flat.trainable) units_[unit].trainable += static_cast<int>(flat.pieces.size());
    }
    has_frozen_.push_back(
        std::any_of(layout_.units[unit].flats.begin(), layout_.units[unit].flats.end(),
                    [&](const FlatLayout& flat) { return !flat.trainable && is_gathered(flat, options_.stage); }));
  }
}

void Passes::enter(int unit, const std::vector<at::Tensor>& inputs) {
  const bool nested = !nested_held_.empty();
  const bool with_graph = at::GradMode::is_enabled();
  if (mode_ == Mode::forward) {
    if (!with_graph && !inside_region()) {
      throw Error("unit " + layout_.units[unit].name,
                  "is used without gradients in a training pass. Run forwards without gradients inside "
                  "Engine::evaluate.");
    }
    if (!gathers_.is_open()) open_training_pass();
  }
  enter_needed(unit);
  if (mode_ == Mode::evaluate) return;
  if (inside_region()) {
    regions_.back()->units.push_back(unit);
    for (const int other : needed(unit)) ++units_[other].recomputed_uses;
  } else if (nested) {
    nested_held_.back().push_back(unit);
  } else {
    for (const int other : needed(unit)) ++units_[other].plain_uses;
    follow_inputs(unit, inputs);
  }
  running_.push_back(unit);
}

void Passes::leave(int unit) {
  if (!running_.empty() && running_.back() == unit) running_.pop_back();
}

void Passes::begin_region(Region* region) {
  regions_.push_back(region);
  for (const int unit : running_) {
    for (const int other : needed(unit)) units_[other].has_regions = true;
  }
}

void Passes::follow_inputs(int unit, const std::vector<at::Tensor>& inputs) {
  UnitPass& pass = units_[unit];
  const int before = pass.inputs_pending;
  for (const at::Tensor& input : inputs) {
    const bool flows = hooks_.when_gradient_complete(input, [this, unit] {
      --units_[unit].inputs_pending;
      release_if_through(unit);
    });
    if (flows) ++pass.inputs_pending;
  }
  if (pass.inputs_pending == before && has_frozen_[unit]) pass.held = true;
}

void Passes::enter_without_graph(int unit) {
  if (!gathers_.is_open()) open_training_pass();
  enter_needed(unit);
  for (const int other : needed(unit)) ++units_[other].recomputed_uses;
}

void Passes::exit_without_graph(int unit) { exit_needed(unit); }

bool Passes::enter_repeated(int unit, const std::vector<at::Tensor>& inputs) {
  learn_graph();
  learn_nested_graph();
  UnitPass& pass = units_[unit];
  // For the values alone: also where a region is repeated without a graph, inside another one.
  if (pass.recomputed_uses == 0 || !at::GradMode::is_enabled()) {
    enter_needed(unit);
    return true;
  }
  if (!pass.in_backward) enter_needed(unit);
  pass.in_backward = true;
  for (const int other : needed(unit)) {
    --units_[other].recomputed_uses;
    ++units_[other].repeated_uses;
    units_[other].repeated = true;
  }
  follow_inputs(unit, inputs);
  return false;
}

void Passes::read_outside_uses(int unit) {
  UnitPass& pass = units_[unit];
  pass.unseen = true;
  if (mode_ != Mode::backward) return;
  learn_graph();
  learn_nested_graph();
  pass.held = true;
  if (!std::exchange(pass.in_backward, true)) enter_needed(unit);
}

void Passes::exit_repeated(int unit) { exit_needed(unit); }

void Passes::exit(int unit, const std::vector<at::Tensor>& outputs) {
  leave(unit);
  const bool held_by_nested = !nested_held_.empty() && !inside_region();
  if (held_by_nested) return;
  exit_needed(unit);
  if (mode_ == Mode::evaluate || inside_region()) return;
  bool seen = false;
  for (const at::Tensor& output : outputs) {
    seen |= hooks_.before_backward_of(output, [this, unit] { begin_unit_backward(unit); });
  }
  if (!seen) units_[unit].outputs_unseen = true;
}

void Passes::abandon(int unit) {
  leave(unit);
  const bool held_by_nested = !nested_held_.empty() && !inside_region();
  if (!held_by_nested && gathers_.is_open()) exit_needed(unit);
}

void Passes::begin_evaluation() {
  if (!between_passes()) {
    throw Error("evaluation",
                "a training pass is open: its forward ran and its backward did not. Call backward first.");
  }
  mode_ = Mode::evaluate;
  gathers_.begin(Phase::evaluate);
}

void Passes::finish_evaluation() {
  gathers_.close_phase();
  gathers_.finish();
  gathers_.agree_on_order(Phase::evaluate);
  mode_ = Mode::forward;
}

void Passes::begin_backward(const at::Tensor& root) {
  const bool known = root.defined() && hooks_.before_backward_of(root, [this] { learn_graph(); });
  open_backward(known ? Graph::awaited : Graph::unknown);
}

void Passes::begin_running_backward(double factor) {
  open_backward(Graph::awaited);
  factor_ = factor;
}

void Passes::open_backward(Graph graph) {
  if (!gathers_.is_open()) open_training_pass();  // a loss that no unit took part in
  if (!micro_step_begun_) begin_micro_step();
  mode_ = Mode::backward;
  gathers_.close_phase();
  gathers_.begin(Phase::backward);
  graph_ = graph;
  // Before the first reduction: see [Note: one order for all ranks] in gather_schedule.h.
  gathers_.agree_on_order(Phase::forward);
}

bool Passes::runs_aside() {
  const int id = RunningGraph::id_of_now();
  if (mode_ != Mode::forward || id < 0) return false;
  if (id != judged_graph_) {
    const std::unique_ptr<RunningGraph> graph = RunningGraph::now();
    judged_graph_ = id;
    judged_aside_ = graph && graph->is_asked_for() && !graph->recomputes() &&
                    std::none_of(gradient_hooks_.begin(), gradient_hooks_.end(),
                                 [&](const HookedParam& param) { return graph->reaches(param.hook); });
  }
  if (judged_aside_ && options_.stage.row.weights != Over::nobody) {
    throw Error("backward",
                "torch.autograd.grad, or a backward with inputs=, runs through the model, and at stage 3 weights are "
                "gathered for engine.backward alone. Use zero_optimization.stage 2 or less.");
  }
  return judged_aside_;
}

// See [Note: when a unit's gradients are complete].
void Passes::learn_graph() {
  if (mode_ != Mode::backward || graph_ != Graph::awaited) return;
  const std::unique_ptr<RunningGraph> graph = RunningGraph::now();
  if (!graph) return;
  graph_ = Graph::runs;
  graph_id_ = graph->id();
  graph_may_nest_ = graph->may_nest();
  count_due(*graph, /*nested=*/false);
  // At stage 3 a unit that was not entered cannot be read. (A whole one can: then the late gradient is an error.)
  const bool sees_all = options_.stage.row.weights != Over::nobody || !graph_may_nest_;
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    UnitPass& pass = units_[unit];
    if (pass.trainable == 0) continue;
    if (pass.gradients_due > 0 || pass.recomputed_uses > 0 || (pass.unseen && graph_may_nest_) || !sees_all) {
      reduce_order_.expect(unit);
    } else if (!gathers_.has_passed(unit)) {
      pass.reduced_when_passed = true;
      reduce_order_.expect(unit);
    }
  }
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    const UnitPass& pass = units_[unit];
    if (pass.outputs_unseen && pass.gradients_due > 0) begin_unit_backward(unit);
  }
}

void Passes::learn_nested_graph() {
  const int id = RunningGraph::id_of_now();
  if (graph_ != Graph::runs || id == graph_id_) return;
  if (std::find(nested_graphs_.begin(), nested_graphs_.end(), id) != nested_graphs_.end()) return;
  nested_graphs_.push_back(id);
  count_due(*RunningGraph::now(), /*nested=*/true);
}

void Passes::count_due(const RunningGraph& graph, bool nested) {
  std::vector<bool> reached(units_.size(), false);
  for (const HookedParam& param : gradient_hooks_) {
    if (!graph.reaches(param.hook)) continue;
    ++units_[param.unit].gradients_due;
    reached[param.unit] = true;
  }
  for (size_t unit = 0; unit < units_.size() && nested; ++unit) {  // what was repeated was repeated for this graph
    if (!std::exchange(units_[unit].repeated, false) && reached[unit]) units_[unit].unseen = true;
  }
}

void Passes::hook_gradient(int unit, int param, const at::Tensor& tensor) {
  gradient_hooks_.push_back(
      {unit, GradientHook(
                 tensor, [this, unit, param](const at::Tensor& grad) { take_gradient(unit, param, grad); },
                 [this, unit, param, tensor] { return target_of_gradient(unit, param, tensor); })});
}

void Passes::finish_backward() {
  for (UnitPass& unit : units_) unit.reduced_when_passed = false;
  reduce(reduce_order_.finish());
  gathers_.close_phase();
  gathers_.finish();
  forget_pass();
  gathers_.agree_on_order(Phase::backward);
  agree_on_reductions();
}

void Passes::agree_on_reductions() {
  if (reduce_order_agreed_) return;
  std::vector<int> order = reduce_order_.readiness();
  gradients_channel_
      .broadcast({.subject = {"agree on the order of reductions", "all units"},
                  .data = order.data(),
                  .nbytes = order.size() * sizeof(int),
                  .root = 0,
                  .keep = nullptr})
      .wait();
  reduce_order_.adopt(std::move(order));
  reduce_order_agreed_ = true;
  gradients_.settle_slots();
}

void Passes::take_gradient(int unit, int param, const at::Tensor& grad) {
  // As the first event of a backward that nobody began: a region's own graph may have brought it, and would be taken
  // for the whole.
  if (mode_ == Mode::forward && begin_outside_) {
    const std::unique_ptr<RunningGraph> graph = RunningGraph::now();
    if (graph && !hooks_.is_followed(*graph)) {
      throw Error("backward",
                  "loss.backward() brings a gradient, and nothing that the model returned is part of it. Call "
                  "engine.backward(loss), or have the model return its loss.");
    }
  }
  check_in_backward("unit " + layout_.units[unit].name);
  learn_graph();
  UnitPass& pass = units_[unit];
  if (nested_held_.empty()) {
    learn_nested_graph();
  } else if (pass.recomputed_uses == 0) {
    pass.unseen = true;
  }
  if (grad.defined()) {
    if (on_gradient_) on_gradient_(unit, param, grad);
    gradients_.deposit(unit, param, grad, factor_);
  }
  if (!nested_held_.empty()) return;
  ++pass.gradients_in;
  if (graph_ == Graph::runs) {
    SHOAL_CHECK(pass.gradients_due > 0, "unit {}: a gradient came that autograd had not counted", unit);
    --pass.gradients_due;
  }
  go_on();
  reduce_if_complete(unit);
  release_if_through(unit);
}

at::Tensor Passes::target_of_gradient(int unit, int param, const at::Tensor& like) {
  if (mode_ != Mode::backward) return {};  // the gradient will be refused
  if (factor_ != 1) return {};
  const UnitPass& pass = units_[unit];
  if (pass.has_regions || pass.plain_uses + pass.recomputed_uses + pass.repeated_uses != 1) return {};
  std::byte* target = gradients_.target(unit, param, to_dtype(like.scalar_type(), "parameter"));
  if (target == nullptr) return {};
  return at::for_blob(target, like.sizes()).options(like.options()).target_device(like.device()).make_tensor();
}

void Passes::begin_nested() {
  check_in_backward("recompute");
  learn_graph();
  nested_held_.emplace_back();
}

void Passes::finish_nested(const Region& region) {
  const std::vector<int> held = std::move(nested_held_.back());
  nested_held_.pop_back();
  for (const int unit : held) exit_needed(unit);
  for (const int unit : region.units) {
    for (const int other : needed(unit)) --units_[other].recomputed_uses;
  }
  for (const int unit : region.units) {
    for (const int other : needed(unit)) reduce_if_complete(other);
  }
}

// The unit itself and those it borrows parameters from.
std::vector<int> Passes::needed(int unit) const {
  std::vector<int> units = layout_.units[unit].borrows;
  units.push_back(unit);
  return units;
}

void Passes::open_training_pass() {
  if (!awaits_step_) begin_micro_step();
  gathers_.begin(Phase::forward);
}

void Passes::begin_micro_step() {
  gradients_.begin_micro_step(micro_step_);
  micro_step_begun_ = true;
}

void Passes::drop_forward() {
  if (between_passes()) return;
  if (!running_.empty()) throw Error("step", "is called inside a forward of the model. Call it after that.");
  gathers_.close_phase();
  gathers_.finish();
  forget_pass();
}

void Passes::forget_pass() {
  hooks_.clear();
  running_.clear();
  nested_graphs_.clear();
  graph_ = Graph::unknown;
  factor_ = 1;
  mode_ = Mode::forward;
  for (UnitPass& unit : units_) unit = UnitPass{.trainable = unit.trainable};
}

void Passes::enter_needed(int unit) {
  unit_at_work_ = unit;
  gathers_.enter(needed(unit));
  go_on();
}

void Passes::exit_needed(int unit) {
  gathers_.exit(needed(unit));
  go_on();
}

void Passes::need(int unit) {
  if (on_need_) on_need_(unit);
}

void Passes::go_on() {
  if (mode_ != Mode::evaluate && on_work_) on_work_();
}

void Passes::begin_unit_backward(int unit) {
  check_in_backward("unit " + layout_.units[unit].name);
  learn_graph();
  UnitPass& pass = units_[unit];
  if (pass.in_backward) return;
  pass.in_backward = true;
  enter_needed(unit);
}

void Passes::notice_running_backward() {
  if (mode_ == Mode::forward && gathers_.is_open() && begin_outside_ && RunningGraph::id_of_now() >= 0 &&
      !runs_aside()) {
    begin_outside_();
  }
}

void Passes::check_in_backward(const std::string& place) {
  if (mode_ == Mode::forward && begin_outside_) begin_outside_();
  if (mode_ == Mode::backward) return;
  throw Error(place,
              "a gradient came outside Engine::backward. Call engine.backward(loss) instead of loss.backward().");
}

// Of the graphs that have begun. Where autograd was not asked: each graph that was seen to use the unit hands over each
// parameter's gradient once.
bool Passes::gradients_are_in(const UnitPass& pass) const {
  if (graph_ == Graph::runs) return pass.gradients_due == 0 && (!pass.repeated || pass.trainable == 0);
  const int seen = pass.trainable * (pass.repeated_uses + (pass.plain_uses > 0 ? 1 : 0));
  return pass.gradients_in >= std::max(pass.trainable, seen);
}

// See [Note: when a unit's gradients are complete].
bool Passes::is_complete(const UnitPass& pass) const {
  if (graph_ != Graph::runs || pass.recomputed_uses > 0) return false;
  return gradients_are_in(pass) && !(pass.unseen && graph_may_nest_);
}

void Passes::reduce_if_complete(int unit) {
  UnitPass& pass = units_[unit];
  if (pass.reduced || pass.trainable == 0 || !is_complete(pass)) return;
  pass.reduced = true;
  reduce(reduce_order_.ready(unit));
}

void Passes::release_if_through(int unit) {
  UnitPass& pass = units_[unit];
  if (!pass.in_backward || pass.held || pass.inputs_pending > 0 || !gradients_are_in(pass)) return;
  pass.in_backward = false;
  exit_needed(unit);
}

void Passes::reduce(const std::vector<int>& units) {
  for (const int unit : units) {
    gathers_.pass_by(unit);  // see [Note: why a skipped unit is passed by before its reduction]
    gradients_.reduce(unit);
    // In the first pass the ranks still settle each gather together, and none may stop for a reduction.
    if (!options_.overlap && gathers_.orders_agreed()) gradients_.wait();
    if (on_reduced_) on_reduced_(unit);
  }
}

// A unit that this rank does not use in this pass has had its turn.
void Passes::reduce_if_left_out(int unit) {
  UnitPass& pass = units_[unit];
  if (!pass.reduced_when_passed) return;
  pass.reduced_when_passed = false;
  pass.reduced = true;
  reduce(reduce_order_.ready(unit));
}

}  // namespace shoal
