// SPDX-License-Identifier: Apache-2.0
// memmove and memset on several threads: what rotations and Encode are compared with.
#ifndef PHASOR_BENCH_KERNELS_COPIER_H_
#define PHASOR_BENCH_KERNELS_COPIER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/thread_pool.h"

namespace phasor::bench {

// Splits each copy and each fill over its threads. Threads: one thread at a time.
class Copier {
 public:
  explicit Copier(int threads) : pool_(threads) {}

  void Copy(const std::byte* from, std::byte* to, int64_t bytes) {
    Split(bytes, [&](int64_t begin, size_t size) { std::memmove(to + begin, from + begin, size); });
  }
  void Fill(std::byte* to, int value, int64_t bytes) {
    Split(bytes, [&](int64_t begin, size_t size) { std::memset(to + begin, value, size); });
  }

 private:
  template <typename Piece>
  void Split(int64_t bytes, const Piece& piece) {
    constexpr int64_t kWorthSharing = 512 << 10;
    const int64_t pieces = bytes < kWorthSharing ? 1 : pool_.threads();
    pool_.ParallelFor(pieces, [&](int64_t i) {
      const int64_t begin = bytes * i / pieces;
      piece(begin, static_cast<size_t>(bytes * (i + 1) / pieces - begin));
    });
  }

  cpu::ThreadPool pool_;
};

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_KERNELS_COPIER_H_
