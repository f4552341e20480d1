# SPDX-License-Identifier: Apache-2.0
# Compiler flags for our own targets, and the tools that make a small machine bearable.

find_program(SPARSED_CCACHE ccache)
if(SPARSED_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The ATen precompiled header and differing build folders would otherwise defeat the cache.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
               CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
               CCACHE_NOHASHDIR=1 ${SPARSED_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

find_program(SPARSED_MOLD mold)
if(SPARSED_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Two compilers and one linker at a time: 2 cores and 24 GiB are the usual machine.
set_property(GLOBAL PROPERTY JOB_POOLS link=1)
set(CMAKE_JOB_POOL_LINK link)

add_library(sparsed_warnings INTERFACE)
target_compile_options(sparsed_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror)

if(SPARSED_SANITIZE)
  add_compile_options(-fsanitize=${SPARSED_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SPARSED_SANITIZE})
endif()
