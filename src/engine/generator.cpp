// See generator.h.
#include "engine/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

namespace shoal {

at::Generator make_generator(at::Device device, uint64_t seed) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  at::Generator generator =
      at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

}  // namespace shoal
