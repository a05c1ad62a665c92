// See graph_hooks.h.
#include "engine/graph_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "shoal/error.h"

namespace shoal {

namespace ag = torch::autograd;

namespace {

struct TakeGradient final : ag::FunctionPreHook {
  explicit TakeGradient(std::weak_ptr<std::function<void(const at::Tensor&)>> take) : take_(std::move(take)) {}
  ag::variable_list operator()(const ag::variable_list& grads) override {
    const auto take = take_.lock();
    if (!take) return grads;  // the engine is gone: autograd accumulates as it always did
    if (grads.at(0).defined()) (*take)(grads[0]);
    return {at::Tensor()};  // nothing left to accumulate
  }
  std::weak_ptr<std::function<void(const at::Tensor&)>> take_;
};

template <class Calls>
struct BeforeNode final : ag::FunctionPreHook {
  explicit BeforeNode(std::shared_ptr<Calls> calls) : calls_(std::move(calls)) {}
  ag::variable_list operator()(const ag::variable_list& grads) override {
    if (calls_->over) {
      throw Error("backward",
                  "comes to a graph whose pass is over: its weights are released. Run one backward for each "
                  "forward; add up losses that share a forward.");
    }
    for (const auto& call : calls_->complete) call();
    for (const auto& call : calls_->before) call();
    return grads;
  }
  std::shared_ptr<Calls> calls_;
};

}  // namespace

GradientHook::GradientHook(const at::Tensor& param, std::function<void(const at::Tensor&)> take)
    : take_(std::make_shared<std::function<void(const at::Tensor&)>>(std::move(take))),
      accumulator_(ag::impl::grad_accumulator(param)) {
  accumulator_->add_pre_hook(std::make_unique<TakeGradient>(take_));
}

bool NodeHooks::when_gradient_complete(const at::Tensor& tensor, std::function<void()> call) {
  Calls* calls = calls_of(tensor);
  if (calls == nullptr) return false;
  calls->complete.push_back(std::move(call));
  return true;
}

bool NodeHooks::before_backward_of(const at::Tensor& tensor, std::function<void()> call) {
  Calls* calls = tensor.defined() && tensor.grad_fn() ? calls_of(tensor) : nullptr;
  if (calls == nullptr) return false;
  calls->before.push_back(std::move(call));
  return true;
}

void NodeHooks::clear() {
  for (auto& [address, hooked] : nodes_) {
    hooked.calls->over = !hooked.calls->before.empty();
    hooked.calls->complete.clear();
    hooked.calls->before.clear();
  }
  nodes_.clear();
}

NodeHooks::~NodeHooks() {
  for (auto& [address, hooked] : nodes_) *hooked.calls = {};
}

NodeHooks::Calls* NodeHooks::calls_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return nullptr;
  std::shared_ptr<ag::Node> node = tensor.grad_fn();
  if (!node) node = ag::impl::grad_accumulator(tensor);
  Hooked& hooked = nodes_[node.get()];
  if (hooked.node.expired()) {
    hooked.calls = std::make_shared<Calls>();
    node->add_pre_hook(std::make_unique<BeforeNode<Calls>>(hooked.calls));
    hooked.node = node;
  }
  return hooked.calls.get();
}

}  // namespace shoal
