# SPDX-License-Identifier: Apache-2.0
# CUDA as a language, from the wheels that `tools/setup.sh --cuda` unpacks into .deps/cuda, and
#   torch::cuda       c10's CUDA streams and allocator; not libtorch_cuda, which a program that has a GPU loads itself
#   sparsed_cutlass   CUTLASS's headers
#   sparsed_cuda_sources(<target> ARCHITECTURES <gencode> … SOURCES …)
set(SPARSED_CUDA_DIR "${PROJECT_SOURCE_DIR}/.deps/cuda" CACHE PATH "Folder with bin/nvcc 13.0, include/, lib/ and cutlass/")
if(NOT EXISTS ${SPARSED_CUDA_DIR}/bin/nvcc)
  message(FATAL_ERROR "nvcc not found in ${SPARSED_CUDA_DIR}. Run `tools/setup.sh --cuda` first, "
                      "or pass -DSPARSED_CUDA_DIR=/path/to/cuda.")
endif()

set(CMAKE_CUDA_COMPILER ${SPARSED_CUDA_DIR}/bin/nvcc)
set(CMAKE_CUDA_ARCHITECTURES OFF)  # every source names its own, see sparsed_cuda_sources
set(CMAKE_CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/nvcc_checked.sh)
# Set before: the C++ standard of the project would be asked for in CMake's own first test of nvcc.
set(CMAKE_CUDA_STANDARD 17)
enable_language(CUDA)
# CMake 3.25 does not know that nvcc speaks C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)

add_library(torch_c10_cuda SHARED IMPORTED GLOBAL)
set_target_properties(torch_c10_cuda PROPERTIES IMPORTED_LOCATION ${SPARSED_TORCH_DIR}/lib/libc10_cuda.so)
add_library(cuda_runtime SHARED IMPORTED GLOBAL)
set_target_properties(cuda_runtime PROPERTIES IMPORTED_LOCATION ${SPARSED_NVIDIA_DIR}/libcudart.so.13)
add_library(sparsed_torch_cuda INTERFACE)
add_library(torch::cuda ALIAS sparsed_torch_cuda)
target_include_directories(sparsed_torch_cuda SYSTEM INTERFACE ${SPARSED_CUDA_DIR}/include)
target_link_libraries(sparsed_torch_cuda INTERFACE torch_c10_cuda cuda_runtime)

add_library(sparsed_cutlass INTERFACE)
target_include_directories(sparsed_cutlass SYSTEM INTERFACE ${SPARSED_CUDA_DIR}/cutlass)

# NDEBUG in every build type: one assert inside CuTe is a function call, and ptxas then serialises all wgmma.
set(SPARSED_NVCC_FLAGS -O3 -DNDEBUG --expt-relaxed-constexpr --expt-extended-lambda -lineinfo
    -Xcompiler=-Wall,-Wno-unknown-pragmas -Werror=all-warnings --diag-suppress=186,177)

function(sparsed_cuda_sources target)
  cmake_parse_arguments(ARG "" "" "ARCHITECTURES;SOURCES" ${ARGN})
  set(flags ${SPARSED_NVCC_FLAGS})
  foreach(architecture ${ARG_ARCHITECTURES})
    list(APPEND flags -gencode=${architecture})
  endforeach()
  set_source_files_properties(${ARG_SOURCES} PROPERTIES COMPILE_OPTIONS "${flags}")
  target_sources(${target} PRIVATE ${ARG_SOURCES})
endfunction()
