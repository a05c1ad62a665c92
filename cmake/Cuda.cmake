# CUDA is built in when nvcc is there. What needs it stands in folders named cuda/ (compiled by nvcc, or by the host
# compiler with the toolkit's headers), and each has a stand-in in the folder no_cuda/ beside it; a build takes one of the
# two, and no file asks which. The runtime is linked statically: a program built with CUDA starts on a machine without it.
#   shoal_has_cuda   ON where this build has CUDA
set(SHOAL_CUDA AUTO CACHE STRING "Build the CUDA parts: AUTO (when nvcc is found), ON or OFF")
# Hopper alone compiles fastest. A wheel is used on other machines than the one that builds it, so it has all.
set(SHOAL_CUDA_ARCHITECTURES "" CACHE STRING "GPU architectures to compile for: all, or as CMAKE_CUDA_ARCHITECTURES takes them (80;90)")
set(all_cuda_architectures 80 86 89 90 100 120)

# shoal_cuda_architectures(<result>): the list for CMAKE_CUDA_ARCHITECTURES. Of "all" those that nvcc knows, machine code for
# each, and for the newest PTX too, which the driver of a still newer GPU compiles.
function(shoal_cuda_architectures result)
  set(wanted ${SHOAL_CUDA_ARCHITECTURES})
  if(NOT wanted)
    set(wanted 90)
    if(SKBUILD)
      set(wanted all)
    endif()
  endif()
  if(wanted STREQUAL all)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCHALL "[0-9]+" known "${known}")
    set(wanted)
    foreach(each ${all_cuda_architectures})
      if(each IN_LIST known)
        list(APPEND wanted ${each}-real)
        set(newest ${each})
      endif()
    endforeach()
    if(NOT wanted)
      message(FATAL_ERROR "nvcc knows none of ${all_cuda_architectures}. Name an architecture: -DSHOAL_CUDA_ARCHITECTURES=90.")
    endif()
    list(REMOVE_ITEM wanted ${newest}-real)
    list(APPEND wanted ${newest})
  endif()
  set(${result} ${wanted} PARENT_SCOPE)
endfunction()

set(shoal_has_cuda OFF)
if(SHOAL_CUDA AND NOT SHOAL_SANITIZE)
  set(CMAKE_CUDA_ARCHITECTURES 90)  # what the check for a compiler compiles for
  set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no later one
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(shoal_has_cuda ON)
    shoal_cuda_architectures(CMAKE_CUDA_ARCHITECTURES)
    message(STATUS "GPUs: ${CMAKE_CUDA_ARCHITECTURES}")
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
  elseif(NOT SHOAL_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "SHOAL_CUDA=ON and there is no nvcc. Install the CUDA toolkit 13, or set SHOAL_CUDA=AUTO.")
  endif()
endif()
message(STATUS "CUDA: ${shoal_has_cuda}")
