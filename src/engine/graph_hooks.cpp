// See graph_hooks.h.
#include "engine/graph_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <typeinfo>

#include "aten/torch_version.h"
#include "shoal/error.h"

namespace shoal {

namespace ag = torch::autograd;

namespace {

template <class Calls>
struct BeforeNode final : ag::FunctionPreHook {
  explicit BeforeNode(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
  ag::variable_list operator()(const ag::variable_list& grads) override {
    if (calls_->skip && *calls_->skip && (*calls_->skip)()) return grads;
    if (calls_->over) {
      throw Error("backward",
                  "comes to a graph whose pass is over: its weights are released, or a step has changed them. Run one "
                  "backward for each forward, before the step; add up losses that share a forward.");
    }
    for (const auto& call : calls_->complete) call();
    for (const auto& call : calls_->before) call();
    return grads;
  }
  std::shared_ptr<Calls> calls_;
};

bool is_recomputing(const ag::Node* node) { return dynamic_cast<const RecomputingNode*>(node) != nullptr; }

}  // namespace

struct GradientHook::OnNode final : ag::FunctionPreHook {
  explicit OnNode(std::weak_ptr<Calls> calls) : calls_(std::move(calls)) {}
  ag::variable_list operator()(const ag::variable_list& grads) override {
    const auto calls = calls_.lock();
    if (!calls) return grads;  // the engine is gone: autograd accumulates as it always did
    calls->take(grads.at(0));
    return {at::Tensor()};  // nothing left to accumulate
  }
  std::weak_ptr<Calls> calls_;
};

GradientHook::GradientHook(const at::Tensor& param, Take take, Target target)
    : calls_(std::make_shared<Calls>(Calls{std::move(take), std::move(target)})),
      accumulator_(keep_node(ag::impl::grad_accumulator(param))) {
  accumulator_->add_pre_hook(std::make_unique<OnNode>(calls_));
}

std::unique_ptr<RunningGraph> RunningGraph::now() {
  if (ag::get_current_graph_task_nodes_in_graph() == nullptr) return nullptr;
  std::unique_ptr<RunningGraph> graph(new RunningGraph);
  graph->id_ = id_of_now();
  return graph;
}

int RunningGraph::id_of_now() { return ag::get_current_graph_task_id(); }

bool RunningGraph::reaches(const GradientHook& hook) const {
  ag::Node* node = hook.accumulator_.get();
  if (ag::get_current_graph_task_nodes_in_graph()->count(node) == 0) return false;
  const auto* asked_for = ag::get_current_graph_task_exec_info();
  if (asked_for == nullptr || asked_for->empty()) return true;
  const auto found = asked_for->find(node);
  return found != asked_for->end() && found->second.needed_;
}

bool RunningGraph::is_asked_for() const {
  const auto* asked_for = ag::get_current_graph_task_exec_info();
  return asked_for != nullptr && !asked_for->empty();
}

bool RunningGraph::recomputes() const {
  const auto& nodes = *ag::get_current_graph_task_nodes_in_graph();
  return std::any_of(nodes.begin(), nodes.end(), is_recomputing);
}

bool RunningGraph::may_nest() const {
  const auto& nodes = *ag::get_current_graph_task_nodes_in_graph();
  // By name: torch::autograd::PyNode lives in a library that we do not link.
  return std::any_of(nodes.begin(), nodes.end(), [](const ag::Node* node) {
    return std::strstr(typeid(*node).name(), "PyNode") != nullptr || is_recomputing(node);
  });
}

bool RunningGraph::has(const ag::Node* node) const {
  return ag::get_current_graph_task_nodes_in_graph()->count(const_cast<ag::Node*>(node)) > 0;
}

// See [Note: gradients made where they are kept].
at::Tensor gradient_target(const at::Tensor& param) {
  const auto accumulator = ag::impl::try_get_grad_accumulator(param);
  if (!accumulator || !accumulator->tensor_pre_hooks().empty()) return {};
  const auto* asked_for = ag::get_current_graph_task_exec_info();
  if (asked_for != nullptr && !asked_for->empty()) return {};
  for (const auto& hook : accumulator->pre_hooks()) {
    const auto* ours = dynamic_cast<GradientHook::OnNode*>(hook.get());
    const auto calls = ours != nullptr ? ours->calls_.lock() : nullptr;
    if (calls && calls->target) return calls->target();
  }
  return {};
}

bool NodeHooks::when_gradient_complete(const at::Tensor& tensor, std::function<void()> call) {
  const std::shared_ptr<Calls> calls = calls_of(tensor);
  if (calls == nullptr) return false;
  calls->complete.push_back(std::move(call));
  return true;
}

bool NodeHooks::before_backward_of(const at::Tensor& tensor, std::function<void()> call) {
  const std::shared_ptr<Calls> calls = tensor.defined() && tensor.grad_fn() ? calls_of(tensor) : nullptr;
  if (calls == nullptr) return false;
  calls->before.push_back(std::move(call));
  return true;
}

bool NodeHooks::is_followed(const RunningGraph& graph) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    const auto calls = entry.second.lock();
    return calls && !calls->before.empty() && graph.has(entry.first);
  });
}

void NodeHooks::clear() {
  for (auto& [address, hooked] : nodes_) {
    const auto calls = hooked.lock();
    if (!calls) continue;
    calls->over = !calls->before.empty();
    calls->complete.clear();
    calls->before.clear();
  }
  nodes_.clear();
}

NodeHooks::~NodeHooks() {
  for (auto& [address, hooked] : nodes_) {
    if (const auto calls = hooked.lock()) *calls = {};
  }
  *skip_ = {};
}

std::shared_ptr<NodeHooks::Calls> NodeHooks::calls_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return nullptr;
  NodePtr node = tensor.grad_fn();
  if (!node) node = ag::impl::grad_accumulator(tensor);
  std::weak_ptr<Calls>& hooked = nodes_[node.get()];
  auto calls = hooked.lock();
  if (!calls) {
    calls = std::make_shared<Calls>();
    calls->skip = skip_;
    node->add_pre_hook(std::make_unique<BeforeNode<Calls>>(calls));
    hooked = calls;
  }
  return calls;
}

}  // namespace shoal
