// See tensors.h.
#include "tensors.h"

#include <torch/csrc/autograd/python_variable.h>

namespace shoal::python {

namespace {

constexpr int kDeepest = 8;  // a cycle ends here

void collect(PyObject* object, std::vector<at::Tensor>& found, int depth) {
  if (object == nullptr || object == Py_None || depth > kDeepest) return;
  if (THPVariable_Check(object)) {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    if (tensor.requires_grad()) found.push_back(tensor);
  } else if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) collect(PyTuple_GET_ITEM(object, i), found, depth + 1);
  } else if (PyList_Check(object)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i) collect(PyList_GET_ITEM(object, i), found, depth + 1);
  } else if (PyDict_Check(object)) {
    PyObject* key = nullptr;
    PyObject* value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(object, &position, &key, &value)) collect(value, found, depth + 1);
  } else if (!PyLong_Check(object) && !PyFloat_Check(object) && !PyUnicode_Check(object) &&
             PyObject_HasAttrString(object, "__dataclass_fields__")) {
    const py::object fields = py::reinterpret_steal<py::object>(PyObject_GetAttrString(object, "__dict__"));
    if (fields) {
      collect(fields.ptr(), found, depth + 1);
    } else {
      PyErr_Clear();  // one with slots
    }
  }
}

}  // namespace

void collect_tensors(py::handle object, std::vector<at::Tensor>& found) { collect(object.ptr(), found, 0); }

}  // namespace shoal::python
