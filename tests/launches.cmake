# What every CUDA kernel is launched with, for each kind of GPU and without one, label "unit": the linker puts a fake in
# place of the runtime. Where there is no nvcc there are no kernels; then it is counted as skipped.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/launches/*.cpp)
if(shoal_has_cuda)
  shoal_test(launches unit PURE SOURCES ${sources})
  target_link_libraries(launches PRIVATE CUDA::cudart_static)
  foreach(name __cudaRegisterFunction __cudaPushCallConfiguration __cudaPopCallConfiguration __cudaGetKernel
          __cudaLaunchKernel cudaLaunchKernel cudaLaunchKernelExC cudaFuncSetAttribute
          cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cudaGetDevice cudaDeviceGetAttribute cudaGetLastError
          cudaMalloc cudaFree cudaMemcpy cudaMemcpyAsync cudaStreamSynchronize)
    target_link_options(launches PRIVATE -Wl,--wrap=${name})
  endforeach()
else()
  add_test(NAME launches COMMAND ${SHOAL_PYTHON} ${PROJECT_SOURCE_DIR}/tools/skip_tests.py
    "kernels are launched by code that nvcc compiles, and this build has no CUDA" ${CMAKE_CURRENT_SOURCE_DIR}/launches/launches_test.cpp)
  set_tests_properties(launches PROPERTIES LABELS unit SKIP_RETURN_CODE 77)
endif()
