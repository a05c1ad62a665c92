// The tensors that need a gradient in what a module takes or returns: tuples, lists, dicts (outputs of transformers are
// dicts) and dataclasses are looked into.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bindings.h"

namespace shoal::python {

void collect_tensors(py::handle object, std::vector<at::Tensor>& found);

}  // namespace shoal::python
