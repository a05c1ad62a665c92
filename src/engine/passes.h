// One pass of the model, from the first unit entered to the end of backward: turns what happens (a unit is entered, a
// gradient comes, a node is about to run) into gathers (unit_gathers.h) and reductions.
//
// [Note: when a unit's backward begins and ends]
// It begins when the first of the nodes that made its outputs is about to run: the unit is gathered again. The unit is
// released at the later of: all its gradients are in; the gradients of all its inputs are complete, so nothing that
// reads its weights is left to run. What never completes (inputs without a gradient) is settled when backward is over.
//
// [Note: when a unit's gradients are complete]
// Nobody's hooks decide that, since a parameter may be used where no hook sees it: by a parent that calls a block's
// members, by a function. Autograd counts, before a graph runs, which nodes it will come to; a parameter among them
// gets one gradient from that graph, the sum of all its uses there, and one that is not among them gets none. So when
// the graph of the loss begins, every unit knows how many gradients it will bring (RunningGraph). Graphs that run
// inside it, of recomputed regions, bring theirs on top; regions that were seen in forward are waited for. What remains
// is a region that nobody saw, of a function written in Python: where there may be one, a unit that was not seen in use
// waits for the end of backward. A gradient that comes after its unit was reduced is an error, never a loss
// (Gradients::deposit). Without the loss's graph (begin_backward() without a root: the caller may back-propagate
// several) nothing is reduced before the end.
//
// [Note: graphs aside]
// torch.autograd.grad runs a graph for the gradients of certain tensors, and no parameter accumulates any: a gradient
// penalty, an attack on the inputs. Such a graph is no backward of the pass, and the pass goes on after it. Where
// weights are sharded they are released by then, and it is refused.
//
// [Note: recompute inside backward]
// A recomputed region runs its forward without a graph, notes which units it used, and in backward runs again with a
// graph of its own and back-propagates that, nested in the outer backward. Units entered in the nested forward stay
// live until the nested backward is through. Completion belongs to the outer graph: a unit's gradients are complete
// only when no region that used it is left.
//
// [Note: why a skipped unit is passed by before its reduction]
// A reduction waits for all ranks, and so does a gather. A rank that does not use a unit could wait in that unit's
// reduction while its peers wait for it in the unit's gather, or the other way round. So a unit that this rank leaves
// out is reduced right after this rank took part in its gather of this backward: its peers do the same two things in
// the same order.
//
// In a first pass there is no order to pass by in: ranks settle each gather together, and one that waits for a
// reduction settles nothing. Where ranks leave out different units, which their wishes in forward show, no unit waits
// for another's slot then.
//
// [Note: regions that somebody else repeats]
// torch.utils.checkpoint drops a part of the graph and runs its forward again in backward; we only see its units
// entered once more. Its re-entrant form runs the first forward without a graph: such a use counts as a recomputed one,
// and its repetition holds the unit until the gradients of the repeated graph are in. The other form keeps the graph
// and repeats the forward inside the unit's own backward, for the values alone: the unit is live while it runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph_hooks.h"
#include "engine/unit_gathers.h"
#include "layout/flat_layout.h"
#include "schedule/gather_schedule.h"
#include "schedule/reduce_order.h"
#include "shard/gradients.h"
#include "shard/weights.h"
#include "shoal/group.h"
#include "shoal/hooks_view.h"

namespace shoal {

struct PassOptions {
  Stage stage = 0;
  GatherLimits gather;
  bool overlap = true;  // false: every collective is waited for where it is issued
};

// The units that a recomputed region used in its forward.
struct Region {
  std::vector<int> units;
};

class Passes {
 public:
  Passes(const ModelLayout& layout, const PassOptions& options, Weights& weights, Gradients& gradients,
         Group& weights_channel, Group& gradients_channel);

  // Around each use of a unit.
  void enter(int unit, const std::vector<at::Tensor>& inputs);
  void exit(int unit, const std::vector<at::Tensor>& outputs);
  // The use ended with an exception.
  void abandon(int unit);

  // A use without a graph in a training pass, and a use inside backward; see [Note: regions that somebody else
  // repeats].
  void enter_without_graph(int unit);
  void exit_without_graph(int unit);
  // True if exit_repeated must follow; false if the unit stays live until the repeated graph's gradients are in.
  bool enter_repeated(int unit, const std::vector<at::Tensor>& inputs);
  void exit_repeated(int unit);
  // Somebody reads a parameter of the unit outside its uses. In forward it was entered for that, and how often it is
  // read in regions that will be repeated nobody knows; in backward it becomes live, until backward is over.
  void read_outside_uses(int unit);

  void begin_evaluation();
  void finish_evaluation();

  // `root`: what alone is back-propagated before finish_backward(); undefined: anything may be.
  void begin_backward(const at::Tensor& root = {});
  // The same where that is under way, inside its first event. Gradients are multiplied by `factor` as they come.
  void begin_running_backward(double factor);
  void finish_backward();
  // From now on every gradient of a parameter is given to take_gradient().
  void hook_gradient(int unit, int param, const at::Tensor& tensor);
  // No more.
  void unhook_gradients() { gradient_hooks_.clear(); }
  // Called when a gradient comes and nobody began a backward; it begins one and sees to its end. Without it that is an
  // error.
  void when_backward_begins_outside(std::function<void()> begin) { begin_outside_ = std::move(begin); }
  // Before a use: one inside a graph that runs repeats a region of it, and may be the first event of a backward that
  // nobody began.
  void notice_running_backward();
  // Called before a unit's weights are read, wherever that is.
  void when_weights_are_needed(std::function<void(int unit)> call) { on_need_ = std::move(call); }
  // Called when a unit's reduction has begun.
  void when_reduced(std::function<void(int unit)> call) { on_reduced_ = std::move(call); }
  // Called with each gradient as it comes, of this rank's own micro-step, before it is added to others.
  void when_gradient_comes(GradientWatch call) { on_gradient_ = std::move(call); }
  // Called between the parts of training passes, often: other work may keep step with them.
  void when_work_goes_on(std::function<void()> call) { on_work_ = std::move(call); }

  // Undefined: a graph has come to the parameter and brings nothing.
  void take_gradient(int unit, int param, const at::Tensor& grad);
  // See [Note: gradients made where they are kept] in graph_hooks.h.
  at::Tensor target_of_gradient(int unit, int param, const at::Tensor& like);

  // Around a region's forward, and around its repetition in backward.
  void begin_region(Region* region);
  void finish_region() { regions_.pop_back(); }
  void begin_nested();
  void finish_nested(const Region& region);
  bool inside_region() const { return !regions_.empty(); }

  // Expires with this object: a graph may outlive its engine.
  std::weak_ptr<const bool> alive() const { return alive_; }

  // The unit that was entered last, in forward or backward: where something that goes wrong goes wrong.
  int unit_at_work() const { return unit_at_work_; }

  // A pass cannot be finished: what is gathered is not what the schedule holds for gathered any more, and nothing goes
  // on. Whoever keeps that in mind is told.
  void lose(const std::string& because) {
    if (on_lost_) on_lost_(because);
  }
  void when_lost(std::function<void(const std::string& because)> call) { on_lost_ = std::move(call); }

  bool between_passes() const { return !gathers_.is_open(); }
  bool in_backward() const { return mode_ == Mode::backward; }
  bool evaluating() const { return mode_ == Mode::evaluate; }
  // Which micro-step of the step the next backward is. `awaits_step`: what is reduced is complete, and a step may take
  // it yet: a forward that comes before changes nothing of it.
  void set_micro_step(int64_t index, bool awaits_step) {
    micro_step_ = index;
    awaits_step_ = awaits_step;
    micro_step_begun_ = false;
  }
  // Weights are about to change: a forward whose backward has not come is over, and that backward would be refused.
  // What it gathered goes.
  void drop_forward();

 private:
  enum class Mode : uint8_t { forward, backward, evaluate };
  enum class Graph : uint8_t {
    unknown,  // anything may be back-propagated
    awaited,  // the root's, which has not begun to run
    runs,
  };
  struct UnitPass {
    int trainable = 0;            // own trainable parameters; the same in every pass
    int plain_uses = 0;           // in this pass's forward, with a graph
    int recomputed_uses = 0;      // by regions that are not through yet
    int gradients_in = 0;         // from the outer graph, and from those that somebody else repeats
    int gradients_due = 0;        // of the graphs that run now; see [Note: when a unit's gradients are complete]
    int repeated_uses = 0;        // by graphs that somebody else repeats, in this backward
    int inputs_pending = 0;       // inputs whose gradient is not complete
    bool repeated = false;        // used by a graph that somebody else repeats, and that does not run yet
    bool unseen = false;          // regions that nobody saw in forward use it, or may
    bool outputs_unseen = false;  // of a use: none of them is a tensor that we find
    bool in_backward = false;
    bool held = false;  // has frozen parameters, and what reads them cannot be followed: live until backward is over
    bool has_regions = false;  // recomputed regions inside its own forward
    bool reduced = false;
    bool reduced_when_passed = false;  // not used in this pass: see [Note: why a skipped unit is passed by ...]
  };

  std::vector<int> needed(int unit) const;
  // Its forward has ended.
  void leave(int unit);
  void open_training_pass();
  void begin_micro_step();
  void forget_pass();
  void enter_needed(int unit);
  void need(int unit);
  void go_on();
  void exit_needed(int unit);
  void begin_unit_backward(int unit);
  // Outside a backward weights are released and gradients have no place to go.
  void check_in_backward(const std::string& place);
  // Before the first event of a backward, and of a graph inside it: which gradients it will bring.
  void open_backward(Graph graph);
  // See [Note: graphs aside].
  bool runs_aside();
  void learn_graph();
  void learn_nested_graph();
  void count_due(const RunningGraph& graph, bool nested);
  bool is_complete(const UnitPass& pass) const;
  bool gradients_are_in(const UnitPass& pass) const;
  void follow_inputs(int unit, const std::vector<at::Tensor>& inputs);
  void reduce_if_complete(int unit);
  void release_if_through(int unit);
  void reduce(const std::vector<int>& units);
  void reduce_if_left_out(int unit);
  void agree_on_reductions();

  const ModelLayout& layout_;
  PassOptions options_;
  Gradients& gradients_;
  Group& gradients_channel_;
  UnitGathers gathers_;
  ReduceOrder reduce_order_;
  NodeHooks hooks_;
  std::vector<UnitPass> units_;
  std::vector<Region*> regions_;               // whose forward is running, innermost last
  std::vector<int> running_;                   // units whose forward is running with a graph or inside a region
  std::vector<std::vector<int>> nested_held_;  // per nested backward: units that it holds
  std::vector<bool> has_frozen_;               // per unit: sharded parameters that are not trained
  struct HookedParam {
    int unit = 0;
    GradientHook hook;
  };
  std::vector<HookedParam> gradient_hooks_;
  Graph graph_ = Graph::unknown;
  double factor_ = 1;  // of gradients, in this backward
  bool graph_may_nest_ = false;
  int graph_id_ = -1;      // of the root's graph
  int judged_graph_ = -1;  // the last one that runs_aside() was asked about
  bool judged_aside_ = false;
  std::vector<int> nested_graphs_;  // ids of those inside it that have begun
  GradientWatch on_gradient_;
  std::function<void(int)> on_need_;
  std::function<void(int)> on_reduced_;
  std::function<void()> on_work_;
  std::function<void(const std::string&)> on_lost_;
  std::function<void()> begin_outside_;
  Mode mode_ = Mode::forward;
  int unit_at_work_ = 0;
  int64_t micro_step_ = 0;
  bool awaits_step_ = false;
  bool micro_step_begun_ = false;  // the gradients know of it
  bool reduce_order_agreed_ = false;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace shoal
