// The message that a call throws, for comparison.
#pragma once

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

}  // namespace shoal::testing
