# Compile options that every target of ours shares.
# -ffp-contract=off: the number contract fixes each rounding, so no multiply-add may be fused unless it is written so.
# NDEBUG always: torch's classes change their layout without it.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(shoal_flags INTERFACE)
target_compile_definitions(shoal_flags INTERFACE NDEBUG)
# Who uses an installed Shoal chooses warnings for himself; where numbers are made, the library is compiled already.
target_compile_features(shoal_flags INTERFACE $<INSTALL_INTERFACE:cxx_std_20>)
set(options -Wall -Wextra -Wno-unused-parameter -ffp-contract=off)
target_compile_options(shoal_flags INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${options}>>")
if(SHOAL_SANITIZE)
  target_compile_options(shoal_flags INTERFACE -fsanitize=${SHOAL_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(shoal_flags INTERFACE -fsanitize=${SHOAL_SANITIZE})
endif()
