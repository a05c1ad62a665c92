// Checks of our own promises. Always on, in every build; a failure is a bug in Shoal, never the user's fault.
// What the user can fix throws shoal::Error instead.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace shoal {

// Thrown by a failed check, so that a test can see it and a run ends with file and line.
class BrokenPromise : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void throw_broken_promise(const char* file, int line, const std::string& text);

}  // namespace shoal

#define SHOAL_CHECK(condition, ...)                                                                              \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      ::shoal::throw_broken_promise(__FILE__, __LINE__,                                                          \
                                    std::string("check failed: " #condition " ") + fmt::format("" __VA_ARGS__)); \
    }                                                                                                            \
  } while (0)

#define SHOAL_CHECK_OP(a, op, b)                                                                                     \
  do {                                                                                                               \
    const auto& shoal_a = (a);                                                                                       \
    const auto& shoal_b = (b);                                                                                       \
    if (!(shoal_a op shoal_b)) {                                                                                     \
      ::shoal::throw_broken_promise(                                                                                 \
          __FILE__, __LINE__, fmt::format("check failed: " #a " " #op " " #b " ({} against {})", shoal_a, shoal_b)); \
    }                                                                                                                \
  } while (0)

#define SHOAL_CHECK_EQ(a, b) SHOAL_CHECK_OP(a, ==, b)
#define SHOAL_CHECK_LE(a, b) SHOAL_CHECK_OP(a, <=, b)
#define SHOAL_CHECK_LT(a, b) SHOAL_CHECK_OP(a, <, b)
#define SHOAL_CHECK_GE(a, b) SHOAL_CHECK_OP(a, >=, b)
