# shoal_install_pages(command share [COMPONENT name]): man pages and completions, made by the command itself when it is
# installed, where man and the shells look: under `share`, of a prefix or, in a wheel, of its environment. The names of the
# files say their shells.
set(SHOAL_MAKE_PAGES ${CMAKE_CURRENT_LIST_DIR}/MakePages.cmake)

function(shoal_install_pages command share)
  set(pages ${CMAKE_BINARY_DIR}/pages)
  install(CODE "set(command \"$<TARGET_FILE:${command}>\")\nset(pages \"${pages}\")\ninclude(\"${SHOAL_MAKE_PAGES}\")" ${ARGN})
  install(DIRECTORY ${pages}/ DESTINATION ${share} ${ARGN})
endfunction()
