// SPDX-License-Identifier: Apache-2.0
// As much of CUDA as kernels/cuda/launch.cu needs, on the host. The threads of a block are threads
// of this process that meet at barriers, so ThreadSanitizer sees a barrier that is missing. Blocks
// run one after another. Include it before launch.cu.
#ifndef PHASOR_TESTS_SUPPORT_CUDA_ON_HOST_H_
#define PHASOR_TESTS_SUPPORT_CUDA_ON_HOST_H_

#include <barrier>
#include <thread>
#include <vector>

namespace phasor::testing {

// The device of all launches, and what they were. Threads: one thread at a time launches.
struct CudaOnHost {
  int major = 9;              // compute capability
  int newest_code = 900;      // the newest architecture that was compiled for
  std::vector<bool> early{};  // of each launch: whether it may start early
};
inline CudaOnHost g_cuda;

struct BlockIndex {
  unsigned x = 0;
};

}  // namespace phasor::testing

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __CUDA_ARCH_LIST__ 750, phasor::testing::g_cuda.newest_code

inline thread_local phasor::testing::BlockIndex threadIdx, blockIdx;
inline std::barrier<>* g_block = nullptr;
inline void __syncthreads() { g_block->arrive_and_wait(); }

enum cudaError_t { cudaSuccess, cudaErrorInvalidValue };
enum { cudaDevAttrComputeCapabilityMajor, cudaLaunchAttributeProgrammaticStreamSerialization };
using cudaStream_t = void*;
struct dim3 {
  unsigned x = 1;
};
struct cudaLaunchAttribute {
  int id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
struct cudaFuncAttributes {};

inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, int, int) {
  *value = phasor::testing::g_cuda.major;
  return cudaSuccess;
}
template <typename Function>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, Function) {
  return cudaSuccess;
}

// Runs the kernel before it returns.
template <typename Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Arguments),
                               const Arguments& arguments) {
  phasor::testing::g_cuda.early.push_back(
      config->numAttrs == 1 && config->attrs->val.programmaticStreamSerializationAllowed == 1);
  std::barrier<> block(config->blockDim.x);
  g_block = &block;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < config->blockDim.x; ++t) {
    threads.emplace_back([&, t] {
      threadIdx.x = t;
      for (blockIdx.x = 0; blockIdx.x < config->gridDim.x; ++blockIdx.x) {
        kernel(arguments);
        __syncthreads();  // the next block has the same shared memory
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return cudaSuccess;
}

#endif  // PHASOR_TESTS_SUPPORT_CUDA_ON_HOST_H_
