# io_uring is built in when liburing is there, linked statically: src/store/uring_io.cpp, or no_uring_io.cpp in its place.
# Whether the kernel allows it is found out at run time.
#   shoal_has_uring   ON where this build has it
set(SHOAL_URING AUTO CACHE STRING "Build the io_uring parts: AUTO (when liburing is found), ON or OFF")

set(shoal_has_uring OFF)
if(SHOAL_URING)
  find_path(URING_INCLUDE_DIR liburing.h)
  find_library(URING_LIBRARY liburing.a)
  if(URING_INCLUDE_DIR AND URING_LIBRARY)
    set(shoal_has_uring ON)
  elseif(NOT SHOAL_URING STREQUAL AUTO)
    message(FATAL_ERROR "SHOAL_URING=ON and there is no liburing.a. Install liburing-dev, or set SHOAL_URING=AUTO.")
  endif()
endif()
message(STATUS "io_uring: ${shoal_has_uring}")
