# Which folders of src/ are pure, as src/layers.txt says; nothing else says it.
#   shoal_pure_folders   relative to src/, sub-folders apart
set(layers_file ${CMAKE_SOURCE_DIR}/src/layers.txt)
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${layers_file})
set(shoal_pure_folders)
file(STRINGS ${layers_file} lines REGEX "^[a-z].* pure$")
foreach(line ${lines})
  string(REGEX REPLACE " .*" "" folder "${line}")
  list(APPEND shoal_pure_folders ${folder})
endforeach()
