// See gloo_factory.h.
//
// The wheel ships ProcessGroupGloo.hpp without the gloo headers that it includes. gloo's types stand there only behind
// pointers and references, and the class itself (vtable, layout) is the wheel's, so the declarations in gloo_stubs/
// are enough to construct it. This holds for the torch that it was checked with, and is refused for any other.
#include "comm/host/gloo_factory.h"

#include <torch/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR != 11
#error "gloo_stubs/ was checked against torch 2.11: check it again for this version"
#endif

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace shoal {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, const GlooOptions& options) {
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->threads = 1;
  gloo->devices.push_back(options.interface.empty()
                              ? c10d::ProcessGroupGloo::createDeviceForHostname(options.address)
                              : c10d::ProcessGroupGloo::createDeviceForInterface(options.interface));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.size, gloo);
}

}  // namespace shoal
