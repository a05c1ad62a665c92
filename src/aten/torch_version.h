// What differs between the versions of torch that Shoal builds against (cmake/TorchWheel.cmake): here and nowhere else.
#pragma once

#include <c10/core/Stream.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <memory>
#include <utility>

#include "shoal/error.h"

namespace shoal {

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13

// A node of autograd's graph as its own functions hold it, and one of our own.
using NodePtr = std::shared_ptr<torch::autograd::Node>;
template <class T, class... Arguments>
std::shared_ptr<T> make_node(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), torch::autograd::deleteNode);
}

// Keeps a node where its type is not known.
inline std::shared_ptr<torch::autograd::Node> keep_node(NodePtr node) { return node; }

#else  // from torch 2.13 on nodes count their references themselves

using NodePtr = c10::intrusive_ptr<torch::autograd::Node>;
template <class T, class... Arguments>
c10::intrusive_ptr<T> make_node(Arguments&&... arguments) {
  return c10::make_intrusive<T>(std::forward<Arguments>(arguments)...);
}

inline std::shared_ptr<torch::autograd::Node> keep_node(NodePtr node) {
  torch::autograd::Node* address = node.get();
  return {address, [kept = std::move(node)](torch::autograd::Node*) mutable { kept.reset(); }};
}

#endif

// The GPU's own handle of a stream.
inline void* native_handle_of(const c10::Stream& stream) {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11
  throw Error("device", "torch 2.10 does not name the GPU's stream. Install torch 2.11 or newer to train on a GPU.");
#else
  return stream.native_handle();
#endif
}

}  // namespace shoal
