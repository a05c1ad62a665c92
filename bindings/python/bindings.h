// One function a public header: each puts that header's names into the module. The bindings translate and decide
// nothing; calls that may wait for other ranks give the GIL away.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace shoal::python {

namespace py = pybind11;

void bind_error(py::module_& module);
void bind_config(py::module_& module);
void bind_group(py::module_& module);
void bind_memory_plan(py::module_& module);
void bind_engine(py::module_& module);
void bind_lone_shards(py::module_& module);
void bind_checkpoint(py::module_& module);
void bind_lr_schedule(py::module_& module);
void bind_lone_update(py::module_& module);

}  // namespace shoal::python
