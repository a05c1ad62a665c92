// How much of their grids tests run, by SHOAL_TEST_SIZE: "small" under sanitizers, "whole" by `make grids`; in between,
// as `make test` has it, the part that each grid names. In those of C++ any two axes meet in all their values.
#pragma once

#include <cstdlib>
#include <string_view>

namespace shoal::testing {

inline bool test_size_is(std::string_view size) {
  const char* set = std::getenv("SHOAL_TEST_SIZE");
  return set != nullptr && size == set;
}
inline bool tests_are_small() { return test_size_is("small"); }
inline bool tests_are_whole() { return test_size_is("whole"); }

}  // namespace shoal::testing
