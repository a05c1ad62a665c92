// What a call left behind, for comparison: the message that it threw, the bytes of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <string>

namespace shoal::testing {

// What `call` throws; "" if it does not.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline std::string bytes_of(const at::Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
}

}  // namespace shoal::testing
