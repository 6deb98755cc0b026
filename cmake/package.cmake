# What `make install` copies, and the Debian package that `make package` makes of it. The version is the project's
# (CMakeLists.txt); the program prints the same one.
include(GNUInstallDirs)

# OpenBLAS's OpenMP build is not in the loader's own folders; the installed program finds it where the built one does.
set_target_properties(quintet PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS quintet RUNTIME)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The Quintet authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "pre-training of encoder-decoder language models, and a laboratory of parallelism")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# Libraries and their versions are read off the program; what it starts, and which OpenBLAS, is not in there.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "openmpi-bin, libopenblas0-openmp")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "iproute2")
include(CPack)
