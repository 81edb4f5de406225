// SPDX-License-Identifier: Apache-2.0
// Many clients that each rotate one token at a time and wait for the answer, as decoding does. That
// is the load that batching is for. Every answer is kept and can be compared with another
// backend's.
#ifndef PHASOR_TESTS_SUPPORT_ONE_TOKEN_LOAD_H_
#define PHASOR_TESTS_SUPPORT_ONE_TOKEN_LOAD_H_

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/backend/backend.h"
#include "kernels/request/request.h"
#include "server/engine/engine.h"
#include "tests/support/test_call.h"

namespace phasor::testing {

class OneTokenLoad {
 public:
  static constexpr int64_t kHeads = 8, kHeadDim = 64;

  OneTokenLoad(int clients, int calls) : clients_(clients), calls_(calls), x_(kBytes, '\0') {
    uint32_t state = 1;
    for (size_t i = 1; i < x_.size(); i += 2) {  // bfloat16 of 1 to 4
      state = state * 1664525u + 1013904223u;
      x_[i - 1] = static_cast<char>(state >> 24);
      x_[i] = 0x40;
    }
  }

  // Makes all calls, each client its own one after another.
  void Run(engine::Engine& engine) {
    answers_.assign(static_cast<size_t>(clients_ * calls_), {});
    latencies_.assign(answers_.size(), absl::ZeroDuration());
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(clients_));
    for (int client = 0; client < clients_; ++client) {
      threads.emplace_back([&, client] {
        for (int i = client * calls_; i < (client + 1) * calls_; ++i) {
          const absl::Time start = absl::Now();
          answers_[static_cast<size_t>(i)] = Rotate(engine, i, static_cast<uint64_t>(client));
          latencies_[static_cast<size_t>(i)] = absl::Now() - start;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Of the last Run, per call.
  const std::vector<absl::Duration>& latencies() const { return latencies_; }

  // Answers of the last Run that are not what `backend` makes of the same calls.
  int Wrong(Backend& backend) const {
    int wrong = 0;
    for (int i = 0; i < clients_ * calls_; ++i) {
      const PreparedRope prepared = Prepare(i);
      std::string y(kBytes, '\0');
      const auto* const in = reinterpret_cast<const std::byte*>(x_.data());
      auto* const out = reinterpret_cast<std::byte*>(y.data());
      const Job jobs[] = {MakeRotaryJob(prepared, {in}, {out})};
      wrong += !backend.Run(jobs).ok() || answers_[static_cast<size_t>(i)] != y;
    }
    return wrong;
  }

 private:
  static constexpr size_t kBytes = kHeads * kHeadDim * 2;

  static PreparedRope Prepare(int position) {
    static const Spec spec{.preset = "llama-2", .head_dim = kHeadDim};
    static const auto plan = CompilePlan(*ResolveSpec(spec));
    const RopeRequest request{.spec = spec,
                              .positions = IntegerRange{.start = position, .count = 1},
                              .tensors = {{Dtype::kBFloat16, {1, kHeads, kHeadDim}, {}}}};
    const auto plans = [](const ResolvedSpec&) { return plan; };
    return *PrepareRope(request, plans, "item");
  }

  // The output, or nothing if the call failed.
  std::string Rotate(engine::Engine& engine, int position, uint64_t client) {
    auto answer = std::make_shared<engine::Answer>();
    auto call = std::make_unique<engine::TestCall>(answer, client);
    call->items.push_back(engine::ItemOf(Prepare(position), {engine::Pieces(x_, 0)}));
    call->cost_bytes = 2 * static_cast<int64_t>(kBytes);
    engine.Submit(std::move(call));
    const auto& result = answer->Wait();
    return result.ok() ? engine::OutputOf(*result) : std::string();
  }

  const int clients_;
  const int calls_;
  std::string x_;
  std::vector<std::string> answers_;
  std::vector<absl::Duration> latencies_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_ONE_TOKEN_LOAD_H_
