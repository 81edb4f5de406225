// SPDX-License-Identifier: Apache-2.0
// FlashInfer's rotary kernel with a C interface, called directly from its header: the kernel that
// its operator launches, without Python's dispatch.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <flashinfer/pos_enc.cuh>

// q [tokens, q_heads, dim] and k [tokens, k_heads, dim] are rotated in place. `table` [positions,
// dim] holds cosines and sines. Returns a cudaError_t.
extern "C" int peer_rope(void* q, void* k, float* table, int64_t* positions, uint32_t tokens,
                         uint32_t q_heads, uint32_t k_heads, uint32_t dim, int interleaved,
                         void* stream) {
  auto* const query = static_cast<nv_bfloat16*>(q);
  auto* const key = static_cast<nv_bfloat16*>(k);
  const size_t q_row = size_t{q_heads} * dim, k_row = size_t{k_heads} * dim;
  return flashinfer::BatchQKApplyRotaryPosIdsCosSinCache<nv_bfloat16, int64_t>(
      query, key, query, key, table, positions, tokens, q_heads, k_heads, dim, dim, q_row, dim,
      k_row, dim, q_row, dim, k_row, dim, interleaved != 0, static_cast<cudaStream_t>(stream));
}
