// What a call left behind, for comparison: the message that it threw, the bytes of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "message_of.h"

namespace shoal::testing {

inline std::string bytes_of(const at::Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
}

}  // namespace shoal::testing
