// SPDX-License-Identifier: Apache-2.0
// A backend for tests of the layers above backends. It inverts every bit, and can be made to wait.
#ifndef PHASOR_TESTS_SUPPORT_FAKE_BACKEND_H_
#define PHASOR_TESTS_SUPPORT_FAKE_BACKEND_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/backend/backend.h"
#include "server/base/mutex.h"

namespace phasor {

// Rotary: y = ~x of dense tensors. Encode: out = ~add_to, or 0x5A without one; rows dense.
// Threads: any.
class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(BatchPolicy policy = {}) : policy_(policy) {}
  std::string_view name() const override { return "fake"; }
  std::string target() const override { return "fake"; }
  int threads() const override { return 1; }

  BatchPolicy batch_policy() const override {
    MutexLock lock(&mu_);
    return policy_;
  }

  absl::Status Run(absl::Span<const Job> jobs) override {
    {
      MutexLock lock(&mu_);
      const int number = ++runs_;
      jobs_.push_back(static_cast<int>(jobs.size()));
      changed_.SignalAll();
      most_at_once_ = std::max(most_at_once_, ++going_on_);
      while (number >= held_from_) changed_.Wait(&mu_);
      --going_on_;
      if (!error_.ok()) return error_;
    }
    for (const Job& job : jobs) {
      if (const auto* rotary = std::get_if<RotaryJob>(&job)) {
        for (const RotaryTensor& tensor : rotary->tensors) Invert(tensor, *rotary);
      } else if (const auto* encode = std::get_if<EncodeJob>(&job)) {
        Fill(*encode);
      }
    }
    return absl::OkStatus();
  }

  // From now on Run blocks until Release.
  void Hold() { HoldFrom(0); }
  void Release() { HoldFrom(std::numeric_limits<int>::max()); }
  // Runs block from the `number`-th on, counted from 1; others do not, or not any more.
  void HoldFrom(int number) {
    MutexLock lock(&mu_);
    held_from_ = number;
    changed_.SignalAll();
  }
  // Blocks until Run was entered `count` times in all.
  void WaitForRuns(int count) {
    MutexLock lock(&mu_);
    while (runs_ < count) changed_.Wait(&mu_);
  }
  int runs() {
    MutexLock lock(&mu_);
    return runs_;
  }
  // Jobs of each run.
  std::vector<int> jobs() {
    MutexLock lock(&mu_);
    return jobs_;
  }
  // Runs that were held at a time, at most.
  int most_at_once() {
    MutexLock lock(&mu_);
    return most_at_once_;
  }
  // Before an engine is made with it, or to none.
  void SetPolicy(BatchPolicy policy) {
    MutexLock lock(&mu_);
    policy_ = policy;
  }
  void FailWith(absl::Status error) {
    MutexLock lock(&mu_);
    error_ = std::move(error);
  }

 private:
  static void Invert(const RotaryTensor& tensor, const RotaryJob& job) {
    const int64_t lanes = tensor.y_strides.head;  // dense: a head follows the other
    if (!tensor.pieces.empty()) {
      int64_t bytes = 0;
      for (const auto& piece : tensor.pieces) bytes += static_cast<int64_t>(piece.size());
      PieceReader(tensor.pieces, 0).Read(bytes, tensor.y);
    }
    const std::byte* const from = tensor.pieces.empty() ? tensor.x : tensor.y;
    const RotaryStrides& strides = tensor.pieces.empty() ? tensor.x_strides : tensor.y_strides;
    for (int64_t t = 0; t < job.tokens; ++t) {
      for (int64_t h = 0; h < tensor.heads; ++h) {
        const std::byte* x = from + t * strides.token + h * strides.head;
        std::byte* y = tensor.y + t * tensor.y_strides.token + h * tensor.y_strides.head;
        for (int64_t i = 0; i < lanes; ++i) y[i] = ~x[i];
      }
    }
  }
  static void Fill(const EncodeJob& job) {
    const int64_t bytes = job.positions->count() * job.out_row_bytes;
    for (int64_t i = 0; i < bytes; ++i) {
      job.out[i] = job.add_to == nullptr ? std::byte{0x5A} : ~job.add_to[i];
    }
  }

  mutable Mutex mu_;
  CondVar changed_;
  BatchPolicy policy_ ABSL_GUARDED_BY(mu_);
  int going_on_ ABSL_GUARDED_BY(mu_) = 0;
  int most_at_once_ ABSL_GUARDED_BY(mu_) = 0;
  int runs_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<int> jobs_ ABSL_GUARDED_BY(mu_);
  int held_from_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int>::max();
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor

#endif  // PHASOR_TESTS_SUPPORT_FAKE_BACKEND_H_
