// SPDX-License-Identifier: Apache-2.0
// A CUDA graph of what a function does to the GPU, with memory of its own as PyTorch's graphs have.
// libtorch_cuda has a class for it, which this program does not link.
#pragma once

#include <atomic>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <functional>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace sparsed::testing {

class CapturedGraph {
 public:
  // Runs the work once as it is, so that libraries are loaded, then captures it. Work that waits for
  // the device throws.
  explicit CapturedGraph(const std::function<void()>& work)
      : stream_(c10::cuda::getStreamFromPool()), pool_{0, NextPool()} {
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    const c10::cuda::CUDAStreamGuard guard(stream_);
    work();
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    Allocator()->beginAllocateToPool(stream_.device_index(), pool_, [this](cudaStream_t stream) {
      return stream == stream_.stream();
    });
    C10_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph_);
      Allocator()->endAllocateToPool(stream_.device_index(), pool_);
      throw;
    }
    C10_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph_));
    Allocator()->endAllocateToPool(stream_.device_index(), pool_);
    C10_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
    Allocator()->releasePool(stream_.device_index(), pool_);
  }

  void Replay() {
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    C10_CUDA_CHECK(cudaGraphLaunch(executable_, stream_));
    C10_CUDA_CHECK(cudaDeviceSynchronize());
  }

 private:
  static c10::cuda::CUDACachingAllocator::CUDAAllocator* Allocator() {
    return c10::cuda::CUDACachingAllocator::get();
  }
  // Numbers that PyTorch's own pools, which count from one, will not reach.
  static uint64_t NextPool() {
    static std::atomic<uint64_t> next{1u << 30};
    return next++;
  }

  c10::cuda::CUDAStream stream_;
  c10::MempoolId_t pool_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace sparsed::testing
