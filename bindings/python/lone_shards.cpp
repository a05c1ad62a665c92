// include/shoal/lone_shards.h.
#include "shoal/lone_shards.h"

#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include "shoal/config.h"

namespace shoal::python {

namespace {

DType stored_dtype(const at::Tensor& param, const std::string& name) {
  switch (param.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kBFloat16: return DType::bf16;
    case at::kHalf: return DType::f16;
    default: throw py::type_error("[parameter " + name + "] has a dtype that Shoal does not shard. Make it a buffer.");
  }
}

}  // namespace

void bind_lone_shards(py::module_& module) {
  module.def(
      "shard_param",
      [](const at::Tensor& param, const std::string& name, std::optional<Precision> precision, Group& world,
         bool empty) {
        DType dtype = stored_dtype(param, name);
        if (precision == Precision::bf16) dtype = DType::bf16;
        if (precision == Precision::fp16) dtype = DType::f16;
        if (precision == Precision::fp32) dtype = DType::f32;
        py::gil_scoped_release without_gil;
        shard_param(param, name, dtype, world, empty ? Standing::empty : Standing::released);
      },
      py::arg("param"), py::arg("name"), py::arg("precision"), py::arg("world"), py::arg("empty") = false);
  module.def("restore_shapes", &restore_shapes);
  module.def("is_lone_shard", &is_lone_shard);
  module.def("read_lone_shard", &read_lone_shard, py::arg("param"), py::arg("rank"));
  py::class_<KeptShard>(module, "KeptShard").def(py::init<const at::Tensor&>()).def("give_back", &KeptShard::give_back);
  py::class_<GatheredShards>(module, "GatheredShards")
      .def(py::init<const std::vector<at::Tensor>&, Group&>(), py::keep_alive<1, 3>(),
           py::call_guard<py::gil_scoped_release>())
      .def("finish", &GatheredShards::finish, py::arg("written_by") = py::none(),
           py::call_guard<py::gil_scoped_release>());
}

}  // namespace shoal::python
