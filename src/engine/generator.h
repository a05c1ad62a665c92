// A random generator that belongs to one rank, apart from the process's default.
#pragma once

#include <ATen/core/Generator.h>

namespace shoal {

at::Generator make_generator(at::Device device, uint64_t seed);

}  // namespace shoal
