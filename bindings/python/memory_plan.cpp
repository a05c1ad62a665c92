// include/shoal/memory_plan.h.
#include "shoal/memory_plan.h"

#include "bindings.h"

namespace shoal::python {

void bind_memory_plan(py::module_& module) {
  py::class_<MemoryPlan>(module, "MemoryPlan")
      .def_readonly("weights", &MemoryPlan::weights)
      .def_readonly("gradients", &MemoryPlan::gradients)
      .def_readonly("states", &MemoryPlan::states)
      .def_readonly("gather_arena", &MemoryPlan::gather_arena)
      .def_readonly("reduce_slots", &MemoryPlan::reduce_slots)
      .def_readonly("host_weights", &MemoryPlan::host_weights)
      .def_readonly("host_states", &MemoryPlan::host_states)
      .def_readonly("disk_states", &MemoryPlan::disk_states)
      .def_readonly("disk_buffers", &MemoryPlan::disk_buffers)
      .def_property_readonly("host_total", &MemoryPlan::host_total)
      .def_property_readonly("model_states", &MemoryPlan::model_states)
      .def_property_readonly("total", &MemoryPlan::total)
      .def("__str__", [](const MemoryPlan& plan) { return to_text(plan); });
}

}  // namespace shoal::python
