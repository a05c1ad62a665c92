# Precompiled headers: torch's and GoogleTest's are most of what a compiler reads in a test. OFF, TESTS (the test programs
# alone, so that a file of the library which forgets an include of its own does not build) or ALL (the library too).
set(SHOAL_PCH OFF CACHE STRING "Precompile torch's and GoogleTest's headers: OFF, TESTS or ALL")
if(SHOAL_PCH)
  add_compile_options(-fpch-preprocess)
  if(CCACHE)  # without these words it does not cache files that see a precompiled header
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  endif()
endif()

set(shoal_pch_of_std <algorithm> <chrono> <functional> <map> <memory> <mutex> <optional> <string> <thread> <vector>)
set(shoal_pch_of_torch <ATen/core/Tensor.h> <fmt/format.h> ${shoal_pch_of_std})
set(shoal_pch_of_tests <gmock/gmock.h> <gtest/gtest.h>)
