# CUDA is built in when nvcc is there. What needs it stands in folders named cuda/ (compiled by nvcc, or by the host
# compiler with the toolkit's headers), and each has a stand-in in the folder no_cuda/ beside it; a build takes one of the
# two, and no file asks which. The runtime is linked statically: a program built with CUDA starts on a machine without it.
#   shoal_has_cuda   ON where this build has CUDA
set(SHOAL_CUDA AUTO CACHE STRING "Build the CUDA parts: AUTO (when nvcc is found), ON or OFF")
set(SHOAL_CUDA_ARCHITECTURES 90 CACHE STRING "GPU architectures to compile for, as CMAKE_CUDA_ARCHITECTURES takes them")

set(shoal_has_cuda OFF)
if(SHOAL_CUDA AND NOT SHOAL_SANITIZE)
  set(CMAKE_CUDA_ARCHITECTURES ${SHOAL_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no later one
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(shoal_has_cuda ON)
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
  elseif(NOT SHOAL_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "SHOAL_CUDA=ON and there is no nvcc. Install the CUDA toolkit 13, or set SHOAL_CUDA=AUTO.")
  endif()
endif()
message(STATUS "CUDA: ${shoal_has_cuda}")
