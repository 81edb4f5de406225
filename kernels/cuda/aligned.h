// SPDX-License-Identifier: Apache-2.0
// Access to aligned memory in one instruction. A GPU reads memory that may be misaligned byte by
// byte. At a misaligned address it faults. The host forgives it, because it may be rescuing a job
// (cuda_backend.cc); built with AddressSanitizer it ends the process, so that tests see it.
// Threads: pure functions.
#ifndef PHASOR_KERNELS_CUDA_ALIGNED_H_
#define PHASOR_KERNELS_CUDA_ALIGNED_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/base/dtype.h"
#include "kernels/base/host_device.h"
#include "kernels/math/element.h"

namespace phasor::cuda {

// p, which must be aligned to kBytes.
template <size_t kBytes, typename Byte>
PHASOR_HD Byte* Aligned(Byte* p) {
#if defined(__SANITIZE_ADDRESS__) && !defined(__CUDA_ARCH__)
  if (reinterpret_cast<uintptr_t>(p) % kBytes != 0) std::abort();
#endif
  return static_cast<Byte*>(__builtin_assume_aligned(p, kBytes));
}

template <typename T>
PHASOR_HD T LoadAligned(const std::byte* p) {
  T value;
  std::memcpy(&value, Aligned<sizeof value>(p), sizeof value);
  return value;
}

template <typename T>
PHASOR_HD void StoreAligned(const T& value, std::byte* p) {
  std::memcpy(Aligned<sizeof value>(p), &value, sizeof value);
}

// Begins to copy kBytes of global memory to shared memory. They are there after the thread has
// called FinishCopies.
template <size_t kBytes>
PHASOR_HD void BeginCopy(const std::byte* from, std::byte* to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (kBytes >= 4) {
    const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared),
                 "l"(__cvta_generic_to_global(from)), "n"(kBytes)
                 : "memory");
    return;
  }
#endif
  std::memcpy(Aligned<kBytes>(to), Aligned<kBytes>(from), kBytes);
}

PHASOR_HD void FinishCopies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// One element, converted as kernels/math/element.h does.
template <typename Element>
PHASOR_HD typename Element::Math LoadElement(const std::byte* p) {
  alignas(Element::kBytes) std::byte bytes[Element::kBytes];
  std::memcpy(bytes, Aligned<Element::kBytes>(p), Element::kBytes);
  return Element::Load(bytes);
}

template <typename Element>
PHASOR_HD void StoreElement(typename Element::Math value, std::byte* p) {
  alignas(Element::kBytes) std::byte bytes[Element::kBytes];
  Element::Store(value, bytes);
  std::memcpy(Aligned<Element::kBytes>(p), bytes, Element::kBytes);
}

// Element i of an array of a compute dtype, rounded to T.
template <typename T>
PHASOR_HD T LoadAs(Dtype dtype, const std::byte* array, int64_t i) {
  switch (dtype) {
    case Dtype::kFloat64:
      return static_cast<T>(LoadElement<scalar::F64>(array + i * 8));
    case Dtype::kFloat32:
      return static_cast<T>(LoadElement<scalar::F32>(array + i * 4));
    case Dtype::kFloat16:
      return static_cast<T>(LoadElement<scalar::F16>(array + i * 2));
    case Dtype::kBFloat16:
      return static_cast<T>(LoadElement<scalar::BF16>(array + i * 2));
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
    case Dtype::kInt32:
    case Dtype::kInt64:
      return 0;  // not compute dtypes
  }
  return 0;
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_ALIGNED_H_
