// The learning-rate schedules of a config, for schedulers in Python.
#include "optim/lr_schedule.h"

#include "bindings.h"

namespace shoal::python {

void bind_lr_schedule(py::module_& module) {
  py::class_<LrSchedule>(module, "LrSchedule")
      .def(py::init([](const Config& config, const std::vector<double>& group_lrs) {
             return LrSchedule(config.scheduler, group_lrs);
           }),
           py::arg("config"), py::arg("group_lrs"))
      .def("lrs", &LrSchedule::lrs, "The rate of each group for the step after so many applied steps.")
      .def("beta1", &LrSchedule::beta1)
      .def("beta2", &LrSchedule::beta2);
}

}  // namespace shoal::python
