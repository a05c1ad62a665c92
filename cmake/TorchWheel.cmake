# Finds the torch wheel of a Python environment and makes imported targets of its libraries:
#   torchwheel::core     headers, c10 and torch_cpu: what the library links
#   torchwheel::runtime  core, plus torch_cuda kept loaded where the wheel has it: what a program links
# find_package(Torch) is not used: with a CUDA wheel it insists on a CUDA toolkit. An installed Shoal brings this file along.
# The versions of torch that Shoal builds against. Nothing else says them: tools/build_backend/, tools/matrix.py and the checks read
# these two lines. Which were run and which only compiled: docs/install.md.
set(SHOAL_TORCH_OLDEST 2.10)
set(SHOAL_TORCH_NEWEST 2.15)

set(SHOAL_PYTHON "" CACHE FILEPATH "The python whose torch wheel is used")
if(NOT SHOAL_PYTHON)
  if(SKBUILD)  # pip builds for the environment that it runs in
    set(SHOAL_PYTHON ${PYTHON_EXECUTABLE})
  elseif(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python3)
    set(SHOAL_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python3)
  else()
    set(SHOAL_PYTHON python3)
  endif()
endif()

set(SHOAL_TORCH_DIR "" CACHE PATH "The folder of the package torch; left out: that of SHOAL_PYTHON")
set(TORCH_DIR ${SHOAL_TORCH_DIR})
if(NOT TORCH_DIR)
  execute_process(
    COMMAND ${SHOAL_PYTHON} -c
            "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.dirname(s.origin) if s else '')"
    OUTPUT_VARIABLE TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT EXISTS ${TORCH_DIR}/version.py)
  message(FATAL_ERROR "No torch in ${SHOAL_PYTHON} ${SHOAL_TORCH_DIR}. Run 'make setup', or pass -DSHOAL_PYTHON=<a python with torch>.")
endif()
file(STRINGS ${TORCH_DIR}/version.py TORCH_VERSION_LINE REGEX "^__version__")
string(REGEX REPLACE "^[^'\"]*['\"]([0-9]+\\.[0-9]+).*" "\\1" TORCH_MINOR "${TORCH_VERSION_LINE}")
if(TORCH_MINOR VERSION_LESS SHOAL_TORCH_OLDEST)
  message(FATAL_ERROR "Shoal needs torch ${SHOAL_TORCH_OLDEST} or newer; ${TORCH_DIR} has ${TORCH_MINOR}. Install a newer torch, or name another with -DSHOAL_PYTHON=.")
endif()
if(TORCH_MINOR VERSION_GREATER SHOAL_TORCH_NEWEST)
  message(WARNING "Shoal was tried up to torch ${SHOAL_TORCH_NEWEST}; ${TORCH_DIR} has ${TORCH_MINOR}. If it does not compile, or its tests fail, take ${SHOAL_TORCH_NEWEST}.")
endif()
if(SHOAL_BUILT_FOR_TORCH AND NOT TORCH_MINOR STREQUAL SHOAL_BUILT_FOR_TORCH)  # an installed Shoal
  message(FATAL_ERROR "This Shoal was built for torch ${SHOAL_BUILT_FOR_TORCH}; ${TORCH_DIR} has ${TORCH_MINOR}. Name a Python with torch ${SHOAL_BUILT_FOR_TORCH} by -DSHOAL_PYTHON=, or build Shoal for this torch.")
endif()
message(STATUS "torch wheel: ${TORCH_DIR}")

foreach(name c10 torch_cpu c10_cuda torch_cuda)
  if(EXISTS ${TORCH_DIR}/lib/lib${name}.so)
    add_library(torchwheel::${name} SHARED IMPORTED)
    set_target_properties(torchwheel::${name} PROPERTIES IMPORTED_LOCATION ${TORCH_DIR}/lib/lib${name}.so)
  endif()
endforeach()

add_library(torchwheel::core INTERFACE IMPORTED)
target_include_directories(torchwheel::core SYSTEM INTERFACE
  ${TORCH_DIR}/include ${TORCH_DIR}/include/torch/csrc/api/include)
target_compile_definitions(torchwheel::core INTERFACE USE_DISTRIBUTED)
target_link_libraries(torchwheel::core INTERFACE torchwheel::torch_cpu torchwheel::c10)
target_link_options(torchwheel::core INTERFACE LINKER:--allow-shlib-undefined)

add_library(torchwheel::runtime INTERFACE IMPORTED)
target_link_libraries(torchwheel::runtime INTERFACE torchwheel::core)
