# SPDX-License-Identifier: Apache-2.0
# sparsed_cargo_staticlib(<target> CRATE_DIR <dir> LIB <name>): an imported static library built by cargo.
# --offline: crates were fetched by tools/setup.sh; a build never reaches for the network.
find_program(SPARSED_CARGO cargo REQUIRED)

function(sparsed_cargo_staticlib target)
  cmake_parse_arguments(ARG "" "CRATE_DIR;LIB" "" ${ARGN})
  # One cargo folder for all presets: the crate is the same in each, and a cold build of it costs a minute.
  set(target_dir ${PROJECT_SOURCE_DIR}/build/cargo)
  set(archive ${target_dir}/release/lib${ARG_LIB}.a)
  file(GLOB_RECURSE rust_sources CONFIGURE_DEPENDS ${ARG_CRATE_DIR}/src/*.rs)
  add_custom_command(
    OUTPUT ${archive}
    COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${target_dir}
            ${SPARSED_CARGO} build --release --locked --offline --manifest-path ${ARG_CRATE_DIR}/Cargo.toml
    COMMAND ${CMAKE_COMMAND} -E touch ${archive}
    DEPENDS ${rust_sources} ${ARG_CRATE_DIR}/Cargo.toml ${ARG_CRATE_DIR}/Cargo.lock
    COMMENT "cargo build ${ARG_LIB} (first time: about a minute)"
    USES_TERMINAL)
  add_custom_target(${target}_build DEPENDS ${archive})
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${archive}
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m;gcc_s")
  add_dependencies(${target} ${target}_build)
endfunction()
