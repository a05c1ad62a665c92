# Several sources in one compilation. Of a file that sees torch, most of the time goes into torch's headers; the sources
# of a folder, read one after the other, pay for them once. A file then sees the includes and the nameless namespaces of
# those before it: a name that two files have gets one of them into second_files below.
option(SHOAL_UNITY "Compile the sources of a folder together" OFF)

set(second_files
  src/checkpoint/load.cpp
  src/comm/host/gloo_carrier.cpp
  src/comm/host/gloo_world.cpp
  src/config/top_level.cpp
  src/config/zero.cpp
  src/models/gpt2/model.cpp
  tests/ranks/engine_api_test.cpp
  tests/ranks/hybrid_test.cpp
  tests/ranks/lamb_test.cpp
  tests/ranks/model_start_test.cpp
  tests/ranks/narrow_states_test.cpp
  tests/ranks/offload_test.cpp
  tests/ranks/traffic_test.cpp
  tests/unit/checkpoint/exchange_test.cpp
  tests/unit/checkpoint/run_folder_test.cpp
  tests/unit/comm/host/gloo_link_test.cpp
  tests/unit/comm/host/shm_board_test.cpp
  tests/unit/engine/graph_hooks_test.cpp
  tests/unit/kernels/reduce_reference_test.cpp
  tests/unit/models/gpt2/config_test.cpp
  tests/unit/models/hf_config_test.cpp
  tests/unit/plan/memory_test.cpp
  tests/unit/train/text_source_test.cpp)

# shoal_unity(<target> <source>...): one compilation for each folder of src/, or for the whole target.
function(shoal_unity target)
  if(NOT SHOAL_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A test's class with a base in a nameless namespace looks to g++ as if it came from a header.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  # Debian's CMake names the sources of a folder of depth two (apps/cli) by a path that is one level short: from there it leads
  # to them. Without this it did so from torch's headers, where .venv lies in the checkout, and nowhere else.
  file(RELATIVE_PATH here ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(here MATCHES "/")
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir)
  endif()
  foreach(source ${ARGN})
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${source})
    string(REGEX REPLACE "^src/([^/]*)/.*" "\\1" group ${path})
    if(group STREQUAL path)
      set(group all)
    endif()
    if(path IN_LIST second_files)
      string(APPEND group _second)
    endif()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()
