// The form in which elements travel between ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shoal/dtype.h"

namespace shoal {

// Each element by itself, in a dtype.
struct Wire {
  DType dtype = DType::f32;

  size_t nbytes(int64_t numel) const { return static_cast<size_t>(numel) * nbytes_of(dtype); }
  bool operator==(const Wire&) const = default;
};

}  // namespace shoal
