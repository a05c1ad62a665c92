// The extension module shoal._core.
#include "bindings.h"

PYBIND11_MODULE(_core, module) {
  using namespace shoal::python;
  module.doc() = "The C++ core of Shoal.";
  bind_error(module);
  bind_config(module);
  bind_group(module);
  bind_memory_plan(module);
  bind_engine(module);
  bind_lone_shards(module);
  bind_checkpoint(module);
  bind_lr_schedule(module);
  bind_lone_update(module);
}
