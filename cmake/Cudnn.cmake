# cuDNN's graph API, for attention's backward in deterministic mode: src/models/ops/cudnn_backward.cpp, or
# no_cudnn_backward.cpp in its place. It takes headers alone, those of nvidia-cudnn-frontend and of the cuDNN that torch brings,
# beside torch in its environment; the library is found at run time, where torch has loaded it.
#   shoal_has_cudnn   ON where this build has it
set(SHOAL_CUDNN AUTO CACHE STRING "Build cuDNN's backward of attention: AUTO (when its headers are found), ON or OFF")
set(oldest_cudnn_frontend 1.32)  # what it was written for

set(shoal_has_cudnn OFF)
if(SHOAL_CUDNN AND shoal_has_cuda)
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend_version.h HINTS ${TORCH_DIR}/../include)
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${TORCH_DIR}/../nvidia/cudnn/include NO_DEFAULT_PATH)
  if(CUDNN_FRONTEND_INCLUDE_DIR AND CUDNN_INCLUDE_DIR)
    file(STRINGS ${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h version REGEX "define CUDNN_FRONTEND_(MAJOR|MINOR)_VERSION")
    string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" version "${version}")
    if(version VERSION_GREATER_EQUAL oldest_cudnn_frontend)
      set(shoal_has_cudnn ON)
    endif()
  endif()
endif()
if(NOT shoal_has_cudnn AND SHOAL_CUDNN AND NOT SHOAL_CUDNN STREQUAL AUTO)
  message(FATAL_ERROR "SHOAL_CUDNN=ON needs nvcc, cudnn_frontend.h ${oldest_cudnn_frontend} or newer and cudnn.h beside ${TORCH_DIR}. Install nvidia-cudnn-frontend (pip install --no-deps), or set SHOAL_CUDNN=AUTO.")
endif()
message(STATUS "cuDNN's backward of attention: ${shoal_has_cudnn}")
