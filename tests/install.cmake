# The package that find_package(Shoal) finds, label "process": installed, and used by a project of its own.
add_test(NAME install_test
  COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/install/install_test.py ${CMAKE_BINARY_DIR})
set_tests_properties(install_test PROPERTIES LABELS process TIMEOUT 900)
# What `make install` does, and how `pip install .` finds the torch that it builds against.
add_test(NAME install_prefix_test
  COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/install/install_prefix_test.py ${CMAKE_BINARY_DIR})
add_test(NAME build_backend_test COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/install/build_backend_test.py)
set_tests_properties(install_prefix_test build_backend_test PROPERTIES LABELS process TIMEOUT 900)
# Completion in real shells, and man pages; each where its program is installed.
set(run_shells_test ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/install/shells_test.py $<TARGET_FILE:shoal_cli>)
add_test(NAME shells_test COMMAND ${run_shells_test} Bash Pages)
add_test(NAME shells_zsh_test COMMAND ${run_shells_test} Zsh)
add_test(NAME shells_fish_test COMMAND ${run_shells_test} Fish)
add_test(NAME shells_groff_test COMMAND ${run_shells_test} Groff)
set_tests_properties(shells_test shells_zsh_test shells_fish_test shells_groff_test PROPERTIES
  LABELS process TIMEOUT 900 SKIP_RETURN_CODE 77)
