// SPDX-License-Identifier: Apache-2.0
// memmove on several threads: what rotations are compared with.
#ifndef PHASOR_BENCH_KERNELS_COPIER_H_
#define PHASOR_BENCH_KERNELS_COPIER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/thread_pool.h"

namespace phasor::bench {

// Splits each copy over its threads. Threads: one thread at a time.
class Copier {
 public:
  explicit Copier(int threads) : pool_(threads) {}

  void Copy(const std::byte* from, std::byte* to, int64_t bytes) {
    constexpr int64_t kWorthSharing = 512 << 10;
    const int64_t pieces = bytes < kWorthSharing ? 1 : pool_.threads();
    pool_.ParallelFor(pieces, [&](int64_t i) {
      const int64_t begin = bytes * i / pieces;
      const int64_t end = bytes * (i + 1) / pieces;
      std::memmove(to + begin, from + begin, static_cast<size_t>(end - begin));
    });
  }

 private:
  cpu::ThreadPool pool_;
};

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_KERNELS_COPIER_H_
