# Finds the torch wheel of a Python environment and makes imported targets of its libraries:
#   torchwheel::core     headers, c10 and torch_cpu: what the library links
#   torchwheel::runtime  core, plus torch_cuda kept loaded where the wheel has it: what a program links
# find_package(Torch) is not used: with a CUDA wheel it insists on a CUDA toolkit. An installed Shoal brings this file along.
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

execute_process(
  COMMAND ${SHOAL_PYTHON} -c
          "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.dirname(s.origin) if s else '')"
  OUTPUT_VARIABLE TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT TORCH_DIR)
  message(FATAL_ERROR "No torch in ${SHOAL_PYTHON}. Run 'make setup', or pass -DSHOAL_PYTHON=<python with torch 2.11>.")
endif()
file(STRINGS ${TORCH_DIR}/version.py TORCH_VERSION_LINE REGEX "^__version__")
if(NOT TORCH_VERSION_LINE MATCHES "'2\\.11\\.")
  message(FATAL_ERROR "Shoal builds against torch 2.11; ${TORCH_DIR} has ${TORCH_VERSION_LINE}.")
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
