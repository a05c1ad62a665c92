// See recompute.h.
#include "engine/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include "aten/torch_version.h"
#include "engine/graph_hooks.h"
#include "shoal/error.h"

namespace shoal {

namespace ag = torch::autograd;

namespace {

// Sets the generator to a state and back, whatever happens in between.
class RandomState {
 public:
  RandomState(at::Generator& generator, const at::Tensor& state)
      : generator_(generator), later_(generator.get_state()) {
    generator_.set_state(state);
  }
  ~RandomState() { generator_.set_state(later_); }
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;

 private:
  at::Generator& generator_;
  at::Tensor later_;
};

// Whether a tensor was changed, without keeping its memory.
class Unchanged {
 public:
  explicit Unchanged(const at::Tensor& tensor)
      : counter_(tensor.defined() ? ag::impl::version_counter(tensor) : c10::VariableVersion()),
        version_(tensor.defined() ? counter_.current_version() : 0),
        defined_(tensor.defined()) {}
  bool holds() const { return !defined_ || counter_.current_version() == version_; }

 private:
  c10::VariableVersion counter_;  // shared with the tensor
  uint32_t version_;
  bool defined_;
};

struct RecomputeNode final : ag::Node, RecomputingNode {
  RecomputeNode(ag::edge_list&& edges, const RecomputeParts& parts)
      : ag::Node(std::move(edges)),
        alive_(parts.passes.alive()),
        passes_(parts.passes),
        generator_(parts.generator),
        host_inputs_(parts.host_inputs) {}

  ag::variable_list apply(ag::variable_list&& grads) override {
    if (alive_.expired()) throw Error("recompute", "the engine of this graph is gone. Call backward while it lives.");
    if (!forward_) throw Error("recompute", "backward runs a second time through a recomputed region. Run it once.");
    for (const Unchanged& input : unchanged_) {
      if (input.holds()) continue;
      throw Error("recompute",
                  "an input of a recomputed region was changed in place after its forward. "
                  "Clone it before changing it.");
    }
    std::vector<at::Tensor> leaves = host_inputs_ != nullptr ? host_inputs_->bring(*offloaded_) : inputs_;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].defined()) leaves[i] = leaves[i].detach();
      if (task_should_compute_output(i)) leaves[i].set_requires_grad(true);
    }
    passes_.begin_nested();
    {
      at::AutoGradMode with_graph(true);
      std::vector<at::Tensor> outputs;
      {
        RandomState as_in_forward(generator_, random_state_);
        outputs = forward_(leaves);
      }
      ag::variable_list roots;
      ag::variable_list root_grads;
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (!outputs[i].requires_grad() || !grads[i].defined()) continue;
        roots.push_back(outputs[i]);
        root_grads.push_back(grads[i]);
      }
      if (!roots.empty()) ag::backward(roots, root_grads);
    }
    passes_.finish_nested(region_);
    ag::variable_list input_grads;
    for (const at::Tensor& leaf : leaves) {
      input_grads.push_back(leaf.defined() && leaf.requires_grad() ? leaf.grad() : at::Tensor());
    }
    return input_grads;
  }

  void release_variables() override {
    inputs_.clear();
    offloaded_ = nullptr;
    forward_ = nullptr;
  }
  std::string name() const override { return "ShoalRecompute"; }

  std::weak_ptr<const bool> alive_;  // says whether the next three still are
  Passes& passes_;
  at::Generator& generator_;
  HostInputs* host_inputs_;
  RecomputedForward forward_;
  std::vector<at::Tensor> inputs_;                    // without their graph; none where they are offloaded
  std::shared_ptr<HostInputs::Offloaded> offloaded_;  // of the inputs, where there are host_inputs_
  std::vector<Unchanged> unchanged_;
  at::Tensor random_state_;
  Region region_;
};

}  // namespace

std::vector<at::Tensor> recompute(const RecomputeParts& parts, const std::vector<at::Tensor>& inputs,
                                  const RecomputedForward& forward) {
  // Without a graph there is nothing to repeat; inside another region the outer one repeats it.
  if (!at::GradMode::is_enabled()) return forward(inputs);

  Passes& passes = parts.passes;
  auto node = make_node<RecomputeNode>(ag::collect_next_edges(inputs), parts);
  node->forward_ = forward;
  node->random_state_ = parts.generator.get_state();
  for (const at::Tensor& input : inputs) node->unchanged_.emplace_back(input);
  if (parts.host_inputs != nullptr) {
    node->offloaded_ = parts.host_inputs->send(inputs);
  } else {
    for (const at::Tensor& input : inputs) node->inputs_.push_back(input.defined() ? input.detach() : at::Tensor());
  }
  std::vector<at::Tensor> outputs;
  {
    at::AutoGradMode without_graph(false);
    passes.begin_region(&node->region_);
    try {
      outputs = forward(inputs);
    } catch (...) {
      passes.finish_region();
      throw;
    }
    passes.finish_region();
  }
  for (at::Tensor& output : outputs) {
    output = output.detach();  // a tensor of its own: an output may be an input handed through
    if (at::isFloatingType(output.scalar_type())) {
      ag::set_history(output, node);
    } else {
      node->add_input_metadata(ag::Node::undefined_input());
    }
  }
  return outputs;
}

}  // namespace shoal
