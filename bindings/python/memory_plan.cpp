// include/shoal/memory_plan.h, and the planner of `shoal plan`.
#include "shoal/memory_plan.h"

#include "bindings.h"
#include "plan/from_config.h"
#include "plan/stage_plans.h"

namespace shoal::python {

namespace {

// (name, [(name, shape, trainable), ...], indices of units whose parameters it uses too)
using PlannedParam = std::tuple<std::string, std::vector<int64_t>, bool>;
using PlannedUnit = std::tuple<std::string, std::vector<PlannedParam>, std::vector<int>>;

std::vector<MemoryPlan> plan_memory_of_stages(const std::vector<PlannedUnit>& units, const Config& config, int world) {
  PlanSubject subject;
  for (const auto& [name, params, borrows] : units) {
    UnitSpec unit{.name = name, .params = {}, .borrows = borrows};
    for (const auto& [param_name, shape, trainable] : params) {
      unit.params.push_back(
          {.name = param_name, .shape = shape, .dtype = dtype_of(config.precision), .trainable = trainable});
    }
    subject.units.push_back(std::move(unit));
  }
  std::vector<MemoryPlan> plans;
  for (const StagePlan& plan : plan_stages(subject, config, world)) plans.push_back(plan.memory);
  return plans;
}

}  // namespace

void bind_memory_plan(py::module_& module) {
  py::class_<MemoryPlan>(module, "MemoryPlan")
      .def_readonly("weights", &MemoryPlan::weights)
      .def_readonly("gradients", &MemoryPlan::gradients)
      .def_readonly("states", &MemoryPlan::states)
      .def_readonly("gather_arena", &MemoryPlan::gather_arena)
      .def_readonly("reduce_slots", &MemoryPlan::reduce_slots)
      .def_readonly("host_weights", &MemoryPlan::host_weights)
      .def_readonly("host_gradients", &MemoryPlan::host_gradients)
      .def_readonly("host_states", &MemoryPlan::host_states)
      .def_readonly("state_ring", &MemoryPlan::state_ring)
      .def_readonly("second_weights", &MemoryPlan::second_weights)
      .def_readonly("disk_weights", &MemoryPlan::disk_weights)
      .def_readonly("disk_states", &MemoryPlan::disk_states)
      .def_readonly("disk_buffers", &MemoryPlan::disk_buffers)
      .def_readonly("save_pictures", &MemoryPlan::save_pictures)
      .def_property_readonly("host_total", &MemoryPlan::host_total)
      .def_property_readonly("model_states", &MemoryPlan::model_states)
      .def_property_readonly("total", &MemoryPlan::total)
      .def("__str__", [](const MemoryPlan& plan) { return to_text(plan); });
  module.def("plan_stages", &plan_memory_of_stages, py::arg("units"), py::arg("config"), py::arg("world"),
             "What one of so many ranks would hold, at stages 0 to 3.");
}

}  // namespace shoal::python
