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

// Calls `take` with each gradient of the parameter instead of letting autograd accumulate it, as long as this lives.
class GradientHook {
 public:
  GradientHook(const at::Tensor& param, std::function<void(const at::Tensor&)> take);

 private:
  std::shared_ptr<std::function<void(const at::Tensor&)>> take_;  // the node's hook holds it weakly
  std::shared_ptr<torch::autograd::Node> accumulator_;            // autograd itself keeps it only weakly
};

// Calls back when the nodes of one pass's graph are about to run.
class NodeHooks {
 public:
  // All consumers of `tensor` have run: its gradient is complete. False if no gradient flows to it.
  bool when_gradient_complete(const at::Tensor& tensor, std::function<void()> call);
  // The backward of what made `tensor` is about to begin. Runs after the calls above on the same node. False for a
  // leaf: nothing made it.
  bool before_backward_of(const at::Tensor& tensor, std::function<void()> call);
  // Forgets the pass: a backward that comes to its graph later throws where before_backward_of() was asked for.
  void clear();
  ~NodeHooks();

 private:
  struct Calls {
    std::vector<std::function<void()>> complete;
    std::vector<std::function<void()>> before;
    bool over = false;  // the pass is over: see clear()
  };
  Calls* calls_of(const at::Tensor& tensor);

  struct Hooked {
    std::weak_ptr<torch::autograd::Node> node;  // a graph that nobody keeps goes; its address may be used again
    std::shared_ptr<Calls> calls;               // shared with the node's hook
  };
  std::unordered_map<const torch::autograd::Node*, Hooked> nodes_;
};

}  // namespace shoal
