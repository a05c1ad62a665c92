# `cmake --install BUILD --prefix DIR`: the library with its headers, the command, and a package that
# find_package(Shoal) finds. The README says how it is used.
include(CMakePackageConfigHelpers)
include(Pages)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Shoal)

install(TARGETS shoal shoal_pure shoal_flags EXPORT ShoalTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/shoal DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ShoalTargets NAMESPACE Shoal:: DESTINATION ${package_dir})
configure_package_config_file(cmake/ShoalConfig.cmake.in ${CMAKE_BINARY_DIR}/ShoalConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ShoalConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ShoalConfig.cmake ${CMAKE_BINARY_DIR}/ShoalConfigVersion.cmake cmake/TorchWheel.cmake
  DESTINATION ${package_dir})

# The command finds libtorch where it was built, and the files of `shoal tokenize` beside itself. In a wheel it
# lies in the package shoal, and finds the torch beside that.
set(tokenize_programs tools/make_tokens.py tools/tokenize_chat.py tools/chat_template.py tools/conversations.py tools/documents.py
  tools/token_file.py)
if(SKBUILD)
  set_target_properties(shoal_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
  install(TARGETS shoal_cli RUNTIME DESTINATION shoal/bin COMPONENT python)
  install(FILES ${tokenize_programs} DESTINATION shoal/share/shoal COMPONENT python)
  shoal_install_pages(shoal_cli ${SKBUILD_DATA_DIR}/share COMPONENT python)
else()
  set_target_properties(shoal_cli PROPERTIES INSTALL_RPATH ${TORCH_DIR}/lib)
  install(TARGETS shoal_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES ${tokenize_programs} DESTINATION ${CMAKE_INSTALL_DATADIR}/shoal)
  shoal_install_pages(shoal_cli ${CMAKE_INSTALL_DATADIR})
endif()
