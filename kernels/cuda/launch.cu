// SPDX-License-Identifier: Apache-2.0
// Wraps the bodies in the headers into kernels and launches them.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/early_start.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace phasor::cuda {
namespace {

// What launches of a body that is used often carry if they have one item: the item itself. Kernels
// read arguments without waiting for memory.
template <typename Body, bool kOften>
struct Carried {};
template <typename Body>
struct Carried<Body, true> {
  typename Body::Item item;
};

// The arguments of a kernel: a batch, and its arena if that is small. The driver copies arguments
// to the device with the launch, so a small arena needs no copy of its own.
template <typename Body>
struct Arguments {
  const std::byte* arena;  // nullptr: `inlined` holds it
  int64_t items;
  int64_t first_block;
  int32_t count;
  Carried<Body, Body::kOften> carried;
  alignas(16) std::byte inlined[kInlineBytes];
};

// Computes angles, and finds and loads units. A barrier follows both angles and, unless units may
// be written before others are read, loads.
template <typename Body>
__device__ void Prepare(const typename Body::Item& item, const std::byte* arena, int64_t block,
                        int thread, typename Body::Shared& shared, typename Body::State& state) {
  if constexpr (Body::kOften && requires { item.early; }) {
    Body::Find(item, arena, block, thread, state);
    const bool loads_first = item.loads_first && block >= item.grid.places;
    if (loads_first) {
      WaitForEarlierKernels();
      Body::Load(state);
    }
    Body::Angles(item, arena, block, thread, shared);
    if (item.early) __syncthreads();
    if (!loads_first) {
      WaitForEarlierKernels();
      Body::Load(state);
    }
    if (!item.early) __syncthreads();
  } else {
    Body::Angles(item, arena, block, thread, shared);
    Body::Find(item, arena, block, thread, state);
    if constexpr (!HasRows<Body>) WaitForEarlierKernels();
    Body::Load(state);
    __syncthreads();
  }
}

template <typename Body>
__device__ void RunBlock(const typename Body::Item& item, const std::byte* arena, int64_t block) {
  const auto thread = static_cast<int>(threadIdx.x);
  if constexpr (HasPhases<Body>) {
    __shared__ typename Body::Shared shared;
    typename Body::State state;
    if constexpr (HasRows<Body>) {
      Body::FindRows(item, arena, block, thread, shared);
      WaitForEarlierKernels();
      __syncthreads();
      Body::ReadRows(item, thread, shared);
    }
    Prepare<Body>(item, arena, block, thread, shared, state);
    if constexpr (HasTurn<Body>) {
      Body::Turn(item, shared, state);
      __syncthreads();
    }
    Body::Finish(item, shared, state);
    if constexpr (HasRows<Body>) {
      __syncthreads();
      Body::WriteRows(item, thread, shared);
    }
  } else if constexpr (HasSteps<Body>) {
    __shared__ typename Body::Shared shared;
    const int steps = Body::StepsOf(item);
    for (int step = 0; step < steps; ++step) {
      if (step == 1) WaitForEarlierKernels();
      Body::Run(item, arena, block, thread, step, shared);
      __syncthreads();
    }
  } else {
    if constexpr (!requires { Body::kWaits; }) WaitForEarlierKernels();
    Body::Run(item, arena, block, thread);
  }
}

// So many blocks of a body with steps are wanted on a multiprocessor: as many as its shared memory
// has room for, and on sm_100 one fewer, because with the registers of four the kernels spill.
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ % 100 != 0 || __CUDA_ARCH__ >= 1000)
constexpr int kBlocksWithSteps = 3;
#else
constexpr int kBlocksWithSteps = kBlocksPerProcessor;
#endif

// So many of a body whose threads hold 16 pairs at once. That needs more registers, and more yet
// without instructions that convert to FLOAT8.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
constexpr int kBlocksOf16Pairs = 2;
#else
constexpr int kBlocksOf16Pairs = 3;
#endif

template <typename Body>
constexpr int WantedBlocks() {
  if constexpr (HasRows<Body>) return kBlocksPerProcessor;
  if constexpr (HasSteps<Body>) return kBlocksWithSteps;
  if constexpr (HasPhases<Body>) {
    if (Body::kPairs == 16) return kBlocksOf16Pairs;
    if (Body::kOften || Body::kOutBytes == Body::kBytes) return kBlocksPerProcessor;
  }
  if constexpr (requires { Body::kResident; }) return Body::kResident;
  return 2;
}

template <typename Body>
__global__ void __launch_bounds__(kThreads, WantedBlocks<Body>())
    Kernel(const __grid_constant__ Arguments<Body> arguments) {
  static_assert(sizeof(arguments) <= 4096, "more needs a newer driver");
  const std::byte* const arena = arguments.arena != nullptr ? arguments.arena : arguments.inlined;
  LetLaterKernelsStart();
  if constexpr (Body::kOften) {
    if (arguments.count == 1) return RunBlock<Body>(arguments.carried.item, arena, blockIdx.x);
  }
  const auto found = FindItem<typename Body::Item>(arena, arguments.items, arguments.first_block,
                                                   arguments.count, blockIdx.x);
  RunBlock<Body>(found.item, arena, found.block);
}

// Whether kernels may start early: the current device can do it, and its code waits where it must
// (early_start.h). A newer device may run code that was made for an older one.
bool StartsEarly() {
  if (std::max({__CUDA_ARCH_LIST__}) < 900) return false;
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= 9;
}

template <typename Body>
cudaError_t LaunchBody(const Batch& batch, const cudaLaunchConfig_t& config) {
  Arguments<Body> arguments;
  arguments.arena = batch.arena;
  arguments.items = batch.items;
  arguments.first_block = batch.first_block;
  arguments.count = batch.count;
  if constexpr (Body::kOften) {
    std::memcpy(&arguments.carried, batch.host + batch.items, sizeof arguments.carried);
  }
  if (batch.arena_bytes <= kInlineBytes) {
    arguments.arena = nullptr;
    std::memcpy(arguments.inlined, batch.host, static_cast<size_t>(batch.arena_bytes));
  }
  return cudaLaunchKernelEx(&config, Kernel<Body>, arguments);
}

}  // namespace

int CanLaunch(int device) {
  if (const cudaError_t error = cudaSetDevice(device); error != cudaSuccess) return error;
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, Kernel<LookupBody<scalar::F32>>);
}

int LaunchKernel(const KernelId& id, const Batch& batch, void* stream) {
  if (batch.blocks == 0) return cudaSuccess;
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(batch.blocks));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &early;
  config.numAttrs = StartsEarly() ? 1 : 0;
  cudaError_t error = cudaErrorInvalidValue;
  VisitBody(id, [&]<typename Body>(Body) { error = LaunchBody<Body>(batch, config); });
  return error;
}

}  // namespace phasor::cuda
