// SPDX-License-Identifier: Apache-2.0
// How kernels write to memory: past the caches, or into lines that were fetched ahead. Compiled per
// target, like kernels/cpu/simd-inl.h.
#if defined(PHASOR_KERNELS_CPU_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PHASOR_KERNELS_CPU_MEMORY_INL_H_
#undef PHASOR_KERNELS_CPU_MEMORY_INL_H_
#else
#define PHASOR_KERNELS_CPU_MEMORY_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "kernels/cpu/simd-inl.h"

#if !PHASOR_SCALAR_TARGET

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kPageBytes = 4096;

// Past the caches ---------------------------------------------------------------------------------

// Where vectors that are written past the caches may begin. NumPy's arrays begin at such places.
constexpr uintptr_t kStreamBytes = 16;

HWY_INLINE bool CanStreamAt(uintptr_t bits) { return bits % kStreamBytes == 0; }

// Writes a vector past the caches, in pieces of kStreamBytes.
template <class D>
HWY_INLINE void StreamPieces(hn::Vec<D> v, D d, hn::TFromD<D>* p) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) <= kStreamBytes) {
    hn::Stream(v, d, p);
  } else {
    const hn::Half<D> half;
    StreamPieces(hn::LowerHalf(half, v), half, p);
    StreamPieces(hn::UpperHalf(half, v), half, p + hn::Lanes(half));
  }
}

// Writes a vector past the caches: at once if p is a multiple of its size, else in pieces.
template <class D>
HWY_INLINE void StreamTo(hn::Vec<D> v, D d, hn::TFromD<D>* p) {
  constexpr uintptr_t kBytes = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);
  if (reinterpret_cast<uintptr_t>(p) % kBytes == 0) {
    hn::Stream(v, d, p);
  } else {
    StreamPieces(v, d, p);
  }
}

template <bool kStream, class D>
HWY_INLINE void Put(hn::Vec<D> v, D d, hn::TFromD<D>* p) {
  if constexpr (kStream) {
    StreamTo(v, d, p);
  } else {
    hn::StoreU(v, d, p);
  }
}

// Copies bytes past the caches, whole lines at once, and the rest through them: a line that is
// written past them in two parts takes two to seven times as long.
HWY_INLINE void StreamCopy(const std::byte* from, int64_t bytes, std::byte* to) {
  const hn::Repartition<uint8_t, Df> d;
  const auto* const x = reinterpret_cast<const uint8_t*>(from);
  auto* const y = reinterpret_cast<uint8_t*>(to);
  const auto past_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kLineBytes);
  int64_t i = HWY_MIN(bytes, (kLineBytes - past_line) % kLineBytes);
  std::memcpy(y, x, static_cast<size_t>(i));
  for (; i + kLineBytes <= bytes; i += kLineBytes) {
    for (int64_t k = 0; k < kLineBytes; k += static_cast<int64_t>(hn::Lanes(d))) {
      hn::Stream(hn::LoadU(d, x + i + k), d, y + i + k);
    }
  }
  std::memcpy(y + i, x + i, static_cast<size_t>(bytes - i));
}

// Fetches a line of each page that begins in [p, p + bytes): writes past the caches do not wait for
// the translations of the pages then.
HWY_INLINE void FetchPagesIn(const std::byte* p, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(p);
  const auto page = static_cast<uintptr_t>(kPageBytes);
  for (uintptr_t at = (begin + page - 1) / page * page; at < begin + static_cast<uintptr_t>(bytes);
       at += page) {
    __builtin_prefetch(reinterpret_cast<const void*>(at), /*rw=*/0, /*locality=*/0);
  }
}

// Into the caches ---------------------------------------------------------------------------------

// Fetches a line that is written soon.
HWY_INLINE void FetchToWrite(const void* p) { __builtin_prefetch(p, /*rw=*/1); }

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#endif  // !PHASOR_SCALAR_TARGET
#endif  // include guard
