# The package that find_package(Shoal) finds, label "process": installed, and used by a project of its own.
add_test(NAME install_test
  COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/install/install_test.py ${CMAKE_BINARY_DIR})
set_tests_properties(install_test PROPERTIES LABELS process TIMEOUT 900)
