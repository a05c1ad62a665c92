# The checks of the repository itself, label "unit": the order of includes and imports, tests beside sources, format, and that they
# can fail; and the tests of what counts the tests, skips them and sets a machine up.
foreach(check check_layers check_python check_mirror check_format)
  add_test(NAME ${check} COMMAND ${SHOAL_PYTHON} ${CMAKE_SOURCE_DIR}/tools/${check}.py ${CMAKE_SOURCE_DIR})
  add_test(NAME ${check}_can_fail COMMAND ${SHOAL_PYTHON} ${CMAKE_SOURCE_DIR}/tools/${check}_test.py)
  set_tests_properties(${check} ${check}_can_fail PROPERTIES LABELS unit TIMEOUT 60)
endforeach()
foreach(name count_tests skip_tests setup sanitize matrix)
  add_test(NAME ${name}_test COMMAND ${SHOAL_PYTHON} ${CMAKE_SOURCE_DIR}/tools/${name}_test.py)
  set_tests_properties(${name}_test PROPERTIES LABELS unit TIMEOUT 60)
endforeach()
# And no source is too long, those that documents name are there, links lead somewhere, shown commands run in a test, and what
# sanitizers compile together defines no name twice.
foreach(check check_lengths check_named_files check_links check_commands check_unity)
  add_test(NAME ${check} COMMAND ${SHOAL_PYTHON} ${CMAKE_SOURCE_DIR}/tools/${check}.py ${CMAKE_SOURCE_DIR})
  add_test(NAME ${check}_can_fail COMMAND ${SHOAL_PYTHON} ${CMAKE_SOURCE_DIR}/tools/${check}_test.py)
  set_tests_properties(${check} ${check}_can_fail PROPERTIES LABELS unit TIMEOUT 60)
endforeach()
# The plots of the documents are what bench/results/ says.
add_test(NAME plots_test COMMAND ${SHOAL_PYTHON} ${CMAKE_SOURCE_DIR}/bench/plots_test.py)
set_tests_properties(plots_test PROPERTIES LABELS unit TIMEOUT 60)
