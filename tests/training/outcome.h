// What a call left behind, for comparison: the message that it threw, the bytes of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "message_of.h"

namespace shoal::testing {

inline std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.detach().cpu();
  return std::string(static_cast<const char*>(here.const_data_ptr()), here.nbytes());
}

}  // namespace shoal::testing
