// include/shoal/group.h, as much as Python needs: making a world and asking who one is.
#include "shoal/group.h"

#include <torch/csrc/utils/pybind.h>

#include "base/check.h"
#include "bindings.h"
#include "shoal/config.h"

namespace shoal::python {

void bind_group(py::module_& module) {
  py::class_<Group, std::shared_ptr<Group>>(module, "Group")
      .def_property_readonly("rank", &Group::rank)
      .def_property_readonly("size", &Group::size)
      .def_property_readonly("transport", &Group::transport_name)
      .def(
          "barrier",
          [](Group& group) {
            group.barrier({"barrier", "from Python"}).wait();
          },
          py::call_guard<py::gil_scoped_release>());

  module.def(
      "sum_over_ranks",
      [](Group& group, const at::Tensor& values) {
        SHOAL_CHECK(values.is_cpu() && values.is_contiguous() && values.scalar_type() == at::kFloat,
                    "not a contiguous fp32 tensor in host memory");
        group
            .all_reduce({.subject = {"sum", "from Python"},
                         .data = values.mutable_data_ptr(),
                         .dtype = DType::f32,
                         .numel = values.numel(),
                         .post = 1.0f,
                         .keep = nullptr})
            .wait();
      },
      py::call_guard<py::gil_scoped_release>(), "Sums a contiguous fp32 tensor over all ranks, in place.");
  module.def("make_single_group", [] { return std::shared_ptr<Group>(make_single_group()); });
  module.def(
      "make_process_group",
      [](const Config* config) {
        return std::shared_ptr<Group>(
            make_process_group(config != nullptr ? process_group_options(*config) : ProcessGroupOptions{}));
      },
      py::arg("config").none(true) = nullptr, py::call_guard<py::gil_scoped_release>(),
      "Joins the world that the environment of torchrun, mpirun or srun describes, by the config's transport and "
      "timeout.");
}

}  // namespace shoal::python
