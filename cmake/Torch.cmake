# SPDX-License-Identifier: Apache-2.0
# Imported targets for the LibTorch inside the PyPI wheel that tools/setup.sh unpacks into .deps/.
#   torch::cpu   headers + libtorch_cpu + libc10
# find_package(Torch) is not used: it wants a whole CUDA toolkit and puts Torch's own protobuf and fmt
# headers before the system's. -idirafter searches them last, which is what lets gRPC and spdlog
# share a process (and a compile line) with LibTorch.

set(SPARSED_TORCH_DIR "${PROJECT_SOURCE_DIR}/.deps/torch" CACHE PATH "Folder with include/ and lib/ of LibTorch 2.11")
set(SPARSED_NVIDIA_DIR "${PROJECT_SOURCE_DIR}/.deps/nvidia/cu13/lib" CACHE PATH
    "Folder with libcudart.so.13 and libcupti.so.13, which libtorch_cpu loads even without a GPU")

if(NOT EXISTS ${SPARSED_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch not found in ${SPARSED_TORCH_DIR}. Run tools/setup.sh (or `make setup`) first, "
                      "or pass -DSPARSED_TORCH_DIR=/path/to/torch.")
endif()

add_library(torch_c10 SHARED IMPORTED GLOBAL)
set_target_properties(torch_c10 PROPERTIES IMPORTED_LOCATION ${SPARSED_TORCH_DIR}/lib/libc10.so)
add_library(torch_cpu SHARED IMPORTED GLOBAL)
set_target_properties(torch_cpu PROPERTIES IMPORTED_LOCATION ${SPARSED_TORCH_DIR}/lib/libtorch_cpu.so)

# Torch brings its own libgomp.so.1; linking that very file keeps one OpenMP runtime in the process.
add_library(torch_gomp SHARED IMPORTED GLOBAL)
set_target_properties(torch_gomp PROPERTIES IMPORTED_LOCATION ${SPARSED_TORCH_DIR}/lib/libgomp.so.1)

add_library(torch_headers INTERFACE)
target_compile_options(torch_headers INTERFACE "SHELL:-idirafter ${SPARSED_TORCH_DIR}/include")
target_compile_definitions(torch_headers INTERFACE _GLIBCXX_USE_CXX11_ABI=1)

add_library(sparsed_torch INTERFACE)
add_library(torch::cpu ALIAS sparsed_torch)
target_link_libraries(sparsed_torch INTERFACE torch_headers torch_cpu torch_c10 torch_gomp)
target_link_options(sparsed_torch INTERFACE
  -Wl,-rpath,${SPARSED_TORCH_DIR}/lib -Wl,-rpath,${SPARSED_NVIDIA_DIR}
  -Wl,-rpath-link,${SPARSED_NVIDIA_DIR} -Wl,--no-as-needed)
