# SPDX-License-Identifier: Apache-2.0
# sparsed_layer(<name> [SHARED] [FOLDER <layer>] [OUTPUT <file name>] SOURCES … [LIBS …] [PRIVATE_LIBS …])
#
# One folder = one layer = one target `sparsed::<name>`; a layer may be cut into several targets that
# share its FOLDER (default: the target's name). Its include root is a folder in the build tree
# that holds a single symbolic link with the layer's name, so `#include "kernels/…"` compiles only where
# the kernels layer was linked: the include direction is checked by the compiler, not by a reviewer.
# LIBS are part of the layer's interface, PRIVATE_LIBS (and their headers) stop here.
function(sparsed_layer name)
  cmake_parse_arguments(ARG "SHARED" "OUTPUT;FOLDER" "SOURCES;LIBS;PRIVATE_LIBS" ${ARGN})
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${name})
  endif()
  set(root ${PROJECT_BINARY_DIR}/roots/${ARG_FOLDER})
  file(MAKE_DIRECTORY ${root})
  if(NOT EXISTS ${root}/${ARG_FOLDER})
    file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/${ARG_FOLDER} SYMBOLIC)
  endif()
  if(ARG_SHARED)
    add_library(sparsed_${name} SHARED ${ARG_SOURCES})
  else()
    add_library(sparsed_${name} STATIC ${ARG_SOURCES})
  endif()
  add_library(sparsed::${name} ALIAS sparsed_${name})
  if(ARG_OUTPUT)
    set_target_properties(sparsed_${name} PROPERTIES OUTPUT_NAME ${ARG_OUTPUT})
  endif()
  target_include_directories(sparsed_${name} PUBLIC ${root})
  target_link_libraries(sparsed_${name} PUBLIC ${ARG_LIBS} PRIVATE sparsed_warnings ${ARG_PRIVATE_LIBS})
endfunction()
