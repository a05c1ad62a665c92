// How ranks that are processes may talk, as a config and a program choose it.
#pragma once

#include <cstdint>

namespace shoal {

enum class Transport : uint8_t {
  automatic,  // shared memory when all ranks share a host, Gloo otherwise
  shared_memory,
  gloo
};

}  // namespace shoal
