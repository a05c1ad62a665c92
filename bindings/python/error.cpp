// include/shoal/error.h: shoal.Error, a RuntimeError.
#include "shoal/error.h"

#include "bindings.h"

namespace shoal::python {

void bind_error(py::module_& module) { py::register_exception<Error>(module, "Error", PyExc_RuntimeError); }

}  // namespace shoal::python
