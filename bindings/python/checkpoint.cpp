// include/shoal/checkpoint.h.
#include "shoal/checkpoint.h"

#include "bindings.h"
#include "checkpoint/exchange.h"

namespace shoal::python {

void bind_checkpoint(py::module_& module) {
  py::class_<LoadedCheckpoint>(module, "LoadedCheckpoint")
      .def_readonly("path", &LoadedCheckpoint::path)
      .def_readonly("step", &LoadedCheckpoint::step)
      .def_readonly("saved_world", &LoadedCheckpoint::saved_world)
      .def_readonly("extra", &LoadedCheckpoint::extra);
  module.def(
      "save_checkpoint",
      [](const Engine& engine, Group& world, const std::string& folder, int64_t step, int keep_last,
         const std::map<std::string, std::string>& extra) {
        return save_checkpoint(engine, world, {.folder = folder, .step = step, .keep_last = keep_last, .extra = extra});
      },
      py::arg("engine"), py::arg("world"), py::arg("folder"), py::arg("step"), py::arg("keep_last") = 0,
      py::arg("extra") = std::map<std::string, std::string>{}, py::call_guard<py::gil_scoped_release>());
  module.def("load_checkpoint", &load_checkpoint, py::arg("engine"), py::arg("world"), py::arg("path"),
             py::call_guard<py::gil_scoped_release>());
  module.def(
      "gather_texts",
      [](Group& world, const std::string& mine) {
        return checkpoint::gather_texts(world, {"gather texts", "from Python"}, mine);
      },
      py::arg("world"), py::arg("mine"), py::call_guard<py::gil_scoped_release>(),
      "What each rank gave, in rank order.");
  module.def("find_latest_checkpoint", &find_latest_checkpoint, py::arg("folder"));
}

}  // namespace shoal::python
