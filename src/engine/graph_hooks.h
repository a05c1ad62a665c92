// The only place that hangs something on autograd's nodes: a parameter's gradient is taken before it is accumulated,
// and a node that is about to run says so. See [Note: when a unit's backward begins and ends] in passes.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace shoal {

// Calls `take` with each gradient of the parameter instead of letting autograd accumulate it, as long as this lives;
// with an undefined one where a graph comes to the parameter and brings nothing.
class GradientHook {
 public:
  using Take = std::function<void(const at::Tensor&)>;
  using Target = std::function<at::Tensor()>;  // see gradient_target
  GradientHook(const at::Tensor& param, Take take, Target target = {});

 private:
  struct Calls {
    Take take;
    Target target;
  };
  struct OnNode;
  friend at::Tensor gradient_target(const at::Tensor& param);
  friend class RunningGraph;

  std::shared_ptr<Calls> calls_;                        // the node's hook holds it weakly
  std::shared_ptr<torch::autograd::Node> accumulator_;  // autograd itself keeps it only weakly
};

// [Note: gradients made where they are kept]
// An operation of ours that is about to compute a parameter's gradient asks here, in its backward, and computes it
// into what it gets; what it returns to autograd is that tensor. When the gradient arrives it lies where it belongs,
// and a pass over it is saved. Memory is given out once in a micro-step, and for a unit that is used once in it,
// outside or inside a recomputed region: until the gradient arrives, no other one of the parameter does. Undefined
// where the gradient is to be computed anywhere: the unit is used more often, the engine adds the gradient to others or
// keeps it in another dtype, the parameter is no engine's, or somebody else may get hold of the gradient, by a hook on
// the parameter or by asking autograd for it.
at::Tensor gradient_target(const at::Tensor& param);

// What a node of ours is that computes a region once more in its backward, in a graph of its own.
class RecomputingNode {
 public:
  virtual ~RecomputingNode() = default;
};

// The graph that the calling thread back-propagates now, as autograd itself counted it before it began: each parameter
// in it gets its gradient once, the sum of all its uses there.
class RunningGraph {
 public:
  // Null outside a backward. Valid while the graph runs.
  static std::unique_ptr<RunningGraph> now();
  // Of the innermost graph that runs; -1: none does. No two graphs have the same.
  static int id_of_now();

  int id() const { return id_; }
  // Whether it will come to the hook's parameter.
  bool reaches(const GradientHook& hook) const;
  // Whether the caller asked for the gradients of certain tensors (torch.autograd.grad): then nothing else gets any.
  bool is_asked_for() const;
  // Whether a recomputed region of ours is part of it.
  bool recomputes() const;
  // Whether a recomputed region, or a function that is written in Python, is part of it. Such a one may run a graph of
  // its own when its turn comes (torch.utils.checkpoint with use_reentrant=True), which may reach any parameter.
  bool may_nest() const;
  bool has(const torch::autograd::Node* node) const;

 private:
  RunningGraph() = default;
  int id_ = -1;
};

// Calls back when the nodes of one pass's graph are about to run.
class NodeHooks {
 public:
  // While it says so, a graph that runs is none of ours: nothing is called.
  void skip_while(std::function<bool()> skip) { *skip_ = std::move(skip); }
  // All consumers of `tensor` have run: its gradient is complete. False if no gradient flows to it.
  bool when_gradient_complete(const at::Tensor& tensor, std::function<void()> call);
  // The backward of what made `tensor` is about to begin. Runs after the calls above on the same node. False for a
  // leaf: nothing made it.
  bool before_backward_of(const at::Tensor& tensor, std::function<void()> call);
  // Whether a node that before_backward_of() was asked for is part of the graph.
  bool is_followed(const RunningGraph& graph) const;
  // Forgets the pass: a backward that comes to its graph later throws where before_backward_of() was asked for.
  void clear();
  ~NodeHooks();

 private:
  struct Calls {
    std::vector<std::function<void()>> complete;
    std::vector<std::function<void()>> before;
    bool over = false;  // the pass is over: see clear()
    std::shared_ptr<const std::function<bool()>> skip;
  };
  std::shared_ptr<Calls> calls_of(const at::Tensor& tensor);

  // The node's hook owns its calls: they go with a graph that nobody keeps, whose addresses may be used again.
  std::unordered_map<const torch::autograd::Node*, std::weak_ptr<Calls>> nodes_;
  std::shared_ptr<std::function<bool()>> skip_ = std::make_shared<std::function<bool()>>();  // shared with the calls
};

}  // namespace shoal
