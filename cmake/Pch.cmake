# Precompiled headers for builds that only run tests under sanitizers: torch's and GoogleTest's headers are most of what a
# compiler reads there. Off for dev and release, so that a file which forgets an include of its own does not build.
option(SHOAL_PCH "Precompile torch's and GoogleTest's headers" OFF)
if(SHOAL_PCH)
  add_compile_options(-fpch-preprocess)
  if(CCACHE)  # without these words it does not cache files that see a precompiled header
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  endif()
endif()

set(shoal_pch_of_std <algorithm> <chrono> <functional> <map> <memory> <mutex> <optional> <string> <thread> <vector>)
set(shoal_pch_of_torch <ATen/core/Tensor.h> <fmt/format.h> ${shoal_pch_of_std})
set(shoal_pch_of_tests <gmock/gmock.h> <gtest/gtest.h>)
