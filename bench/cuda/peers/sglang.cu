// SPDX-License-Identifier: Apache-2.0
// sglang's JIT rotary kernel (its second version) with a C interface, launched as its own host code
// does: a persistent grid with programmatic dependent launches.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "elementwise/rope.cuh"

namespace {

template <bool kHalfSplit, int64_t kDim>
int Launch(sglang::FusedRopeParams params, cudaStream_t stream) {
  using Kernel = sglang::FusedRopeKernel<kHalfSplit, kDim, true, nv_bfloat16>;
  constexpr uint32_t kWorkers = sglang::kBlockSize / Kernel::kWorkThreads;
  constexpr auto kKernel = Kernel::template _kernel_0<int64_t>;
  int device = 0, processors = 0, blocks = 0;
  if (cudaError_t e = cudaGetDevice(&device); e != cudaSuccess) return e;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kKernel, sglang::kBlockSize, 0);
  const uint32_t works = (params.num_qo_heads + params.num_kv_heads) * params.num_tokens;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = std::min<uint32_t>(blocks * processors, (works + kWorkers - 1) / kWorkers);
  config.blockDim = sglang::kBlockSize;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kKernel, params);
}

template <bool kHalfSplit>
int LaunchDim(const sglang::FusedRopeParams& params, uint32_t dim, cudaStream_t stream) {
  if (dim == 64) return Launch<kHalfSplit, 64>(params, stream);
  if (dim == 128) return Launch<kHalfSplit, 128>(params, stream);
  if (dim == 256) return Launch<kHalfSplit, 256>(params, stream);
  return cudaErrorNotSupported;
}

}  // namespace

// As in flashinfer.cu.
extern "C" int peer_rope(void* q, void* k, float* table, int64_t* positions, uint32_t tokens,
                         uint32_t q_heads, uint32_t k_heads, uint32_t dim, int interleaved,
                         void* stream) {
  const int64_t head = int64_t{dim} * 2;
  sglang::FusedRopeParams params{};
  params.q_ptr = q;
  params.k_ptr = static_cast<char*>(k) - q_heads * head;  // the kernel numbers k's heads after q's
  params.cos_sin_cache_ptr = table;
  params.positions = positions;
  params.q_stride_bytes = q_heads * head;
  params.k_stride_bytes = k_heads * head;
  params.head_stride_bytes = head;
  params.num_qo_heads = q_heads;
  params.num_kv_heads = k_heads;
  params.num_tokens = tokens;
  auto* const queue = static_cast<cudaStream_t>(stream);
  return interleaved != 0 ? LaunchDim<false>(params, dim, queue)
                          : LaunchDim<true>(params, dim, queue);
}
