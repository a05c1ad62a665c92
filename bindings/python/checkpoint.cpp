// include/shoal/checkpoint.h.
#include "shoal/checkpoint.h"

#include "base/digest.h"
#include "bindings.h"
#include "checkpoint/durable_file.h"
#include "checkpoint/exchange.h"
#include "checkpoint/file_digest.h"

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
  py::class_<SavedCheckpoint>(module, "SavedCheckpoint")
      .def_readonly("path", &SavedCheckpoint::path)
      .def_readonly("step", &SavedCheckpoint::step)
      .def_readonly("seconds", &SavedCheckpoint::seconds);
  py::class_<CheckpointSaver>(module, "CheckpointSaver")
      .def(py::init<const Engine&, Group&>(), py::arg("engine"), py::arg("world"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>())
      .def(
          "save_later",
          [](CheckpointSaver& saver, const std::string& folder, int64_t step, int keep_last,
             const std::map<std::string, std::string>& extra) {
            saver.save_later({.folder = folder, .step = step, .keep_last = keep_last, .extra = extra});
          },
          py::arg("folder"), py::arg("step"), py::arg("keep_last") = 0,
          py::arg("extra") = std::map<std::string, std::string>{}, py::call_guard<py::gil_scoped_release>())
      .def("poll_saved", &CheckpointSaver::poll_saved, py::call_guard<py::gil_scoped_release>())
      .def("wait_saved", &CheckpointSaver::wait_saved, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("under_way", &CheckpointSaver::under_way)
      .def_property_readonly("picture_nbytes", &CheckpointSaver::picture_nbytes)
      .def_property_readonly("state_nbytes", &CheckpointSaver::state_nbytes);
  module.def("load_checkpoint", &load_checkpoint, py::arg("engine"), py::arg("world"), py::arg("path"),
             py::call_guard<py::gil_scoped_release>());
  module.def(
      "gather_texts",
      [](Group& world, const std::string& mine, const std::string& of) {
        return checkpoint::gather_texts(world, {"gather texts", of}, mine);
      },
      py::arg("world"), py::arg("mine"), py::arg("of") = "from Python", py::call_guard<py::gil_scoped_release>(),
      "What each rank gave, in rank order.");
  py::class_<DigestStream>(module, "DigestStream")
      .def(py::init<>())
      .def("add",
           [](DigestStream& stream, const py::buffer& bytes) {
             const py::buffer_info info = bytes.request();
             const auto nbytes = static_cast<size_t>(info.size * info.itemsize);
             py::gil_scoped_release without_gil;
             stream.add(info.ptr, nbytes);
           })
      .def("text", [](const DigestStream& stream) { return digest_text(stream.value()); });
  module.def(
      "digest_of_file",
      [](const std::string& path) {
        const checkpoint::FileDigest found = checkpoint::digest_of_file(path);
        return std::pair(found.nbytes, digest_text(found.digest));
      },
      py::arg("path"), py::call_guard<py::gil_scoped_release>(), "Bytes and checksum (XXH3, 64 bits) of a file.");
  module.def(
      "replace_path", &checkpoint::replace, py::arg("from_path"), py::arg("to_path"),
      "Puts a file or folder in the place of another in one step; a folder that stood there is at from_path then.");
  module.def("find_latest_checkpoint", &find_latest_checkpoint, py::arg("folder"));
}

}  // namespace shoal::python
