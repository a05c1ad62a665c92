# The commands that README.md and the guides show, run as they stand, label "process"; with SHOAL_TEST_SIZE=whole with all
# their steps. tools/check_commands.py says how a document marks them.
add_test(NAME shown_commands_test
  COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/commands_test.py $<TARGET_FILE:shoal_cli>)
set_tests_properties(shown_commands_test PROPERTIES LABELS process TIMEOUT 1800)
list(APPEND grids shown_commands_test)
# The documentation site: what goes into it; and built, where `make docs` has made its environment.
add_test(NAME docs_site_test COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/docs_site_test.py)
add_test(NAME docs_site_build_test COMMAND ${SHOAL_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/docs_site_test.py --build)
set_tests_properties(docs_site_test PROPERTIES LABELS unit TIMEOUT 60)
set_tests_properties(docs_site_build_test PROPERTIES LABELS unit TIMEOUT 300 SKIP_RETURN_CODE 77)
