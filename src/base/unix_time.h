// The clock by which processes agree, and that logs are stamped with.
#pragma once

#include <chrono>

namespace shoal {

inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace shoal
