// SPDX-License-Identifier: Apache-2.0
// The kernel: who is who in a CTA. Persistent: as many CTAs as multiprocessors, each takes query
// tiles until there are none; which CTA computes a tile does not change its bits.
#pragma once

#include <cutlass/arch/reg_reconfig.h>

#include "kernels/cuda/hopper/consumer.cuh"
#include "kernels/cuda/hopper/params.h"
#include "kernels/cuda/hopper/producer.cuh"
#include "kernels/cuda/hopper/traits.cuh"

namespace sparsed::kernels::cuda::hopper {

template <class T>
__device__ void InitialiseBarriers(Storage<T>& storage) {
  constexpr int kReaders = T::kConsumersPerRing * 4;  // warps
  for (Ring<T>& ring : storage.rings) {
    for (int stage = 0; stage < T::kStages; ++stage) {
      ring.full[stage].init(1);
      ring.empty[stage].init(kReaders);
    }
    ring.query_full.init(1);
    ring.query_empty.init(kReaders);
  }
  cutlass::arch::fence_barrier_init();
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    AttentionKernel(const __grid_constant__ Params params) {
  extern __shared__ uint8_t memory[];
  auto& storage = *reinterpret_cast<Storage<T>*>(
      memory + (1024 - cute::cast_smem_ptr_to_uint(memory) % 1024) % 1024);
  if (threadIdx.x == 0) InitialiseBarriers<T>(storage);
  __syncthreads();
  const int warpgroup = static_cast<int>(threadIdx.x / 128);
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<24>();
    const int warp = __shfl_sync(kWholeWarp, static_cast<int>(threadIdx.x / 32), 0);
    if (warp < T::kRings) Producer<T>(params, storage, warp).Run();
  } else {
    cutlass::arch::warpgroup_reg_alloc<240>();
    Consumer<T>(params, storage, warpgroup - 1).Run();
  }
}

// Bytes of dynamic shared memory, alignment included.
template <class T>
constexpr int SharedBytes() {
  return static_cast<int>(sizeof(Storage<T>)) + 1024;
}

// Launches on `stream`; the error of the launch, if any.
template <class T>
cudaError_t LaunchInstance(const Params& params, int ctas, cudaStream_t stream) {
  static const cudaError_t ready = cudaFuncSetAttribute(
      AttentionKernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, SharedBytes<T>());
  if (ready != cudaSuccess) return ready;
  AttentionKernel<T><<<ctas, kThreads, SharedBytes<T>(), stream>>>(params);
  return cudaGetLastError();
}

}  // namespace sparsed::kernels::cuda::hopper
