// SPDX-License-Identifier: Apache-2.0
// Asks a server for twice its capacity: it must use its capacity and refuse the rest. Prints the
// figures, for `./dev accept data-plane`, because they differ on a busy machine.
// PHASOR_OVERLOAD_SECONDS sets the duration. PHASOR_OVERLOAD_RUNS: servers that are overloaded for
// a second, one after the other; 3 unless set.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/e2e/slow_server.h"
#include "tests/support/eventually.h"
#include "tests/support/process_memory.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/subprocess.h"

namespace phasor {
namespace {

using v1::PositionEmbeddingService;

// The budget is the knob: an admitted call waits for those before it, so latency is at most budget
// / capacity. This is 2.25 times the service time, a little more than the answers in flight.
constexpr int64_t kBudget = static_cast<int64_t>(2.25 * kWorkers * 2.02 * kPayloadBytes);

struct Ended {
  absl::Time end;
  absl::Duration latency;
  grpc::Status status;
  bool says_when = false;  // to come back
};

// Calls that are due one after another, whatever becomes of those before.
class Load {
 public:
  explicit Load(PositionEmbeddingService::Stub* stub) : stub_(*stub) {
    v1::ApplyRoPEItem& item = *request_.mutable_item() = testing::RopeOf(1);
    const int64_t tokens = kPayloadBytes / (32 * 128 * 4);
    item.mutable_spec()->set_head_dim(128);
    item.mutable_positions()->mutable_range()->mutable_integer()->set_count(tokens);
    item.mutable_tensors()->RemoveLast();
    testing::SetShape(item.mutable_tensors(0)->mutable_tensor(), v1::DTYPE_FLOAT32,
                      {tokens, 32, 128});
    request_.add_raw(std::string(kPayloadBytes, '\0'));
  }

  // `rate` calls a second for `time`; returns when all have ended, in the order in which they did.
  std::vector<Ended> Run(double rate, absl::Duration time) {
    ended_.clear();
    const auto count = static_cast<int>(rate * absl::ToDoubleSeconds(time));
    under_way_ = count;
    const absl::Time start = absl::Now();
    for (int i = 0; i < count; ++i) {
      const absl::Time due = start + absl::Seconds(i / rate);
      absl::SleepFor(due - absl::Now());
      Start();
    }
    EXPECT_TRUE(testing::Eventually([&] { return under_way_ == 0; }, absl::Minutes(5)));
    return std::move(ended_);
  }

 private:
  struct Call {
    testing::TestContext context;
    v1::ApplyRoPEResponse response;
  };

  void Start() {
    auto call = std::make_shared<Call>();
    stub_.async()->ApplyRoPE(&call->context, &request_, &call->response,
                             [this, call, start = absl::Now()](grpc::Status status) {
                               const absl::Time end = absl::Now();
                               Ended ended{end, end - start, std::move(status)};
                               ended.says_when = call->context.GetServerTrailingMetadata().count(
                                                     "grpc-retry-pushback-ms") == 1;
                               const std::lock_guard<std::mutex> lock(mutex_);
                               ended_.push_back(std::move(ended));
                               --under_way_;
                             });
  }

  PositionEmbeddingService::Stub& stub_;
  v1::ApplyRoPERequest request_;
  std::mutex mutex_;
  std::vector<Ended> ended_;
  std::atomic<int> under_way_ = 0;
};

std::vector<Ended> With(grpc::StatusCode code, const std::vector<Ended>& all) {
  std::vector<Ended> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const Ended& e) { return e.status.error_code() == code; });
  return some;
}

absl::Duration P99(const std::vector<Ended>& calls) {
  std::vector<absl::Duration> latencies;
  for (const Ended& e : calls) latencies.push_back(e.latency);
  std::sort(latencies.begin(), latencies.end());
  return latencies.empty() ? absl::InfiniteDuration() : latencies[latencies.size() * 99 / 100];
}

// Successes per second of calls that ended in [from, to).
double Goodput(const std::vector<Ended>& calls, absl::Time from, absl::Time to) {
  const auto in = [&](const Ended& e) { return e.status.ok() && from <= e.end && e.end < to; };
  return static_cast<double>(std::count_if(calls.begin(), calls.end(), in)) /
         absl::ToDoubleSeconds(to - from);
}

TEST(OverloadTest, TwiceTheCapacityIsServedAsOnce) {
  const char* const seconds = std::getenv("PHASOR_OVERLOAD_SECONDS");
  const absl::Duration time = absl::Seconds(seconds == nullptr ? 5 : std::atoi(seconds));
  testing::Subprocess server({SLOW_SERVER_BINARY, std::to_string(kBudget)});
  const auto stub = PositionEmbeddingService::NewStub(testing::NewChannel(server.ReadLine()));
  Load load(stub.get());

  // On a machine with other work the client makes late calls together, and some may be refused.
  const std::vector<Ended> half = load.Run(0.5 * kCapacity, absl::Seconds(3));
  const std::vector<Ended> unloaded = With(grpc::StatusCode::OK, half);
  ASSERT_FALSE(unloaded.empty());
  EXPECT_EQ(unloaded.size() + With(grpc::StatusCode::UNAVAILABLE, half).size(), half.size());
  const int64_t base = testing::MemoryOf(server.pid(), "VmRSS");

  const absl::Time start = absl::Now();
  const std::vector<Ended> all = load.Run(2 * kCapacity, time);
  const std::vector<Ended> served = With(grpc::StatusCode::OK, all);
  const std::vector<Ended> refused = With(grpc::StatusCode::UNAVAILABLE, all);
  EXPECT_EQ(served.size() + refused.size(), all.size());
  const double goodput = Goodput(all, start + absl::Seconds(1), start + time);
  EXPECT_FALSE(served.empty());
  EXPECT_FALSE(refused.empty());
  for (const Ended& e : refused) {
    EXPECT_TRUE(e.says_when);
    EXPECT_THAT(e.status.error_message(), ::testing::HasSubstr("bytes are in flight"));
  }
  const int64_t peak = testing::MemoryOf(server.pid(), "VmHWM");
  // What refused calls had sent before they were refused comes beside the budget, and gRPC's own.
  // It does not grow with their number. The target, base + budget + 10 %, is met when the machine
  // is quiet (`./dev accept data-plane` looks); a server starved of processor time refuses later.
  EXPECT_LE(peak, base + kBudget + (64 << 20));

  // And when there is less to do again.
  const absl::Time after = absl::Now();
  const double rate = 0.9 * kCapacity;
  const std::vector<Ended> again = load.Run(rate, absl::Seconds(4));
  const double recovered = Goodput(again, after + absl::Seconds(2), after + absl::Seconds(4));
  EXPECT_FALSE(With(grpc::StatusCode::OK, again).empty());

  std::printf(
      "capacity %.0f/s, asked for twice of it for %s: %.1f/s served, p99 %s (unloaded %s, %zu of "
      "%zu served); %zu refused, p99 %s; resident at most %.1f MiB (before %.1f, budget %.1f); "
      "afterwards %.1f/s of %.1f\n",
      kCapacity, absl::FormatDuration(time).c_str(), goodput,
      absl::FormatDuration(P99(served)).c_str(), absl::FormatDuration(P99(unloaded)).c_str(),
      unloaded.size(), half.size(), refused.size(), absl::FormatDuration(P99(refused)).c_str(),
      static_cast<double>(peak) / (1 << 20), static_cast<double>(base) / (1 << 20),
      static_cast<double>(kBudget) / (1 << 20), recovered, rate);
  std::printf("goodput %.3f, recovery %.3f, p99 %.2f times the unloaded; refused in %.2f ms\n",
              goodput / kCapacity, recovered / rate, absl::FDivDuration(P99(served), P99(unloaded)),
              absl::ToDoubleMilliseconds(P99(refused)));
}

// A run of this many of them, in several processes on one core, is in docs/reliability.md:
// gRPC 1.51 once ended with an assertion under such a load (see ReceivedMessage).
TEST(OverloadTest, ServersOutliveOverloadAndEnd) {
  const char* const runs = std::getenv("PHASOR_OVERLOAD_RUNS");
  const int count = runs == nullptr ? 3 : std::atoi(runs);
  int64_t served = 0, refused = 0;
  for (int run = 0; run < count && !HasFailure(); ++run) {
    testing::Subprocess server({SLOW_SERVER_BINARY, std::to_string(kBudget)});
    const auto stub = PositionEmbeddingService::NewStub(testing::NewChannel(server.ReadLine()));
    const std::vector<Ended> all = Load(stub.get()).Run(4 * kCapacity, absl::Seconds(1));
    const size_t ok = With(grpc::StatusCode::OK, all).size();
    const size_t unavailable = With(grpc::StatusCode::UNAVAILABLE, all).size();
    EXPECT_EQ(ok + unavailable, all.size()) << "run " << run;
    EXPECT_GT(ok, 0u) << "run " << run;
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), 0) << "run " << run;
    served += static_cast<int64_t>(ok);
    refused += static_cast<int64_t>(unavailable);
  }
  std::printf("MEASURED %d servers, %lld calls served, %lld refused\n", count,
              static_cast<long long>(served), static_cast<long long>(refused));
}

}  // namespace
}  // namespace phasor
