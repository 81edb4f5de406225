// SPDX-License-Identifier: Apache-2.0
// Runs a storm of calls, 64 in flight, on a GPU that keeps failing and is revived each time. Calls
// with tensors in the message or in host memory are answered as if nothing was wrong. So are calls
// on GPU memory, unless they learn that their memory is spoilt. Of several GPUs, those that work
// are not affected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backends.h"
#include "kernels/request/request.h"
#include "server/engine/engine.h"
#include "tests/support/device_backends.h"
#include "tests/support/test_call.h"

namespace phasor::engine {
namespace {

constexpr int kInFlight = 64;
// Calls, at least, and of every kind of fault; more are made until there were so many.
int WantedCalls() {
  const char* const calls = std::getenv("PHASOR_FAULT_CALLS");
  return calls == nullptr ? 1000 : std::atoi(calls);
}
int WantedFaults() { return WantedCalls() / 20; }
constexpr int64_t kStormTokens = 64;
constexpr int64_t kStormBytes = kStormTokens * 2 * 64 * 2;  // two heads of 64 lanes, three chunks
constexpr int kExports = 8;                                 // each of several callers

// What fails, how often, and with which error. The first of a name that is drawn counts.
struct FaultKind {
  const char* call;
  absl::StatusCode code;
  double probability;
};
constexpr FaultKind kFaultKinds[] = {
    {"CreateStream", absl::StatusCode::kInternal, 0.15},
    {"Allocate", absl::StatusCode::kResourceExhausted, 0.1},
    {"AllocatePinned", absl::StatusCode::kResourceExhausted, 0.1},
    {"CopyToDevice", absl::StatusCode::kInternal, 0.04},
    {"CopyToDevice", absl::StatusCode::kUnavailable, 0.008},
    {"Run", absl::StatusCode::kInternal, 0.04},
    {"Run", absl::StatusCode::kUnavailable, 0.008},
    {"CopyToHost", absl::StatusCode::kInternal, 0.05},
    {"CopyToHost", absl::StatusCode::kUnavailable, 0.015},
    {"Synchronize", absl::StatusCode::kInternal, 0.04},
    {"Synchronize", absl::StatusCode::kUnavailable, 0.008},
    {"Reset", absl::StatusCode::kUnavailable, 0.3},
};
constexpr size_t kKinds = std::size(kFaultKinds);

// Draws faults, and counts them. Threads: any.
class Faults {
 public:
  absl::Status Draw(const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < kKinds; ++i) {
      const FaultKind& kind = kFaultKinds[i];
      if (call != kind.call || uniform_(random_) > kind.probability) continue;
      ++counts_[i];
      return absl::Status(kind.code, call);
    }
    return absl::OkStatus();
  }
  // Of the rarest.
  int least() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return *std::min_element(counts_.begin(), counts_.end());
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 random_{7};
  std::uniform_real_distribution<double> uniform_;
  std::array<int, kKinds> counts_ = {};
};

class FaultStorm : public ::testing::Test {
 protected:
  explicit FaultStorm(int devices = 1, int64_t chunk_bytes = 8 << 10)
      : backend_(devices, BackendOptions(chunk_bytes)) {
    RopeRequest request;
    request.spec.preset = "rope-half-split";
    request.positions = AxisRange{IntegerRange{131000, 1, kStormTokens}};
    request.tensors = {TensorDesc{Dtype::kBFloat16, {kStormTokens, 2, 64}, {}}};
    const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
    prepared_ = *PrepareRope(request, plans, "item");
    std::mt19937 random(3);
    for (std::byte& byte : x_) byte = static_cast<std::byte>(random() % 60);  // no NaN
    want_ = x_;
    const auto reference = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
    const std::byte* const x[] = {x_.data()};
    std::byte* const y[] = {want_.data()};
    EXPECT_TRUE(reference->Run({Job(MakeRotaryJob(prepared_, x, y))}).ok());
    for (int i = 0; i < kExports; ++i) {
      const int64_t bytes = kInFlight / kExports * 2 * kStormBytes;
      exports_.push_back(backend_.device(DeviceOf(i)).Export(bytes));
    }
  }

  static cuda::CudaBackendOptions BackendOptions(int64_t chunk_bytes) {
    return {.chunk_bytes = chunk_bytes,
            .slots = 4,
            .least_bytes = 0,
            .life = {.retry = true,
                     .first_wait = std::chrono::milliseconds(0),
                     .longest_wait = std::chrono::milliseconds(0)}};
  }
  static EngineOptions StormOptions() {
    EngineOptions options;
    options.workers = 4;
    options.inline_bytes = 0;
    return options;
  }

  // The device of a caller's memory.
  size_t DeviceOf(int caller) const {
    return static_cast<size_t>(caller % kExports) % backend_.size();
  }
  static bool Fails(size_t device) { return device == 0 || device == 3; }

  Item ItemOn(const std::byte* x, std::byte* y, std::atomic<bool>* dirty, bool on_device) {
    Item item = ItemOf(prepared_, {{{x, static_cast<size_t>(kStormBytes)}}});
    if (y == nullptr) return item;
    item.outputs[0].place = {.data = y, .on_device = on_device, .dirty = dirty};
    return item;
  }

  // The outcome of a call with one item.
  absl::Status Submit(Item item, std::string* bytes = nullptr) {
    const auto answer = std::make_shared<Answer>();
    auto call = std::make_unique<TestCall>(answer);
    call->items.emplace_back(std::move(item));
    call->cost_bytes = call->other_bytes = kStormBytes;
    engine_.Submit(std::move(call));
    const absl::StatusOr<Result>& result = answer->Wait();
    EXPECT_EQ(answer->times_answered(), 1);
    if (!result.ok()) return result.status();
    if (!result->items[0].status.ok()) return result->items[0].status;
    if (bytes != nullptr) {
      const OutputRange& range = result->items[0].outputs[0];
      bytes->assign(reinterpret_cast<const char*>(result->buffer->data() + range.offset),
                    static_cast<size_t>(range.bytes));
    }
    return absl::OkStatus();
  }

  bool IsWanted(const std::byte* y) const {
    return std::memcmp(y, want_.data(), want_.size()) == 0;
  }

  void CallInline() {
    std::string bytes;
    EXPECT_EQ(Submit(ItemOn(x_.data(), nullptr, nullptr, false), &bytes), absl::OkStatus());
    EXPECT_TRUE(IsWanted(reinterpret_cast<const std::byte*>(bytes.data())));
  }

  void CallInPlaceOnTheHost() {
    std::vector<std::byte> memory = x_;
    std::atomic<bool> dirty = false;
    EXPECT_EQ(Submit(ItemOn(memory.data(), memory.data(), &dirty, false)), absl::OkStatus());
    EXPECT_TRUE(IsWanted(memory.data()));
    EXPECT_FALSE(dirty);
  }

  // `caller` has a place of its own in an allocation that it shares with others.
  void CallOnTheDevice(int caller, bool in_place) {
    const auto& exported = exports_[static_cast<size_t>(caller % kExports)];
    const int64_t at = caller / kExports * 2 * kStormBytes;
    const int64_t to = in_place ? at : at + kStormBytes;
    std::memcpy(exported->data() + at, x_.data(), x_.size());
    const DeviceList devices = backend_.backend().devices();
    auto opened = devices.Open(exported->handle());
    while (!opened.ok()) {  // the device is lost, or others still hold what was there
      ASSERT_EQ(opened.status().code(), absl::StatusCode::kUnavailable);
      std::this_thread::yield();
      backend_.cuda(DeviceOf(caller)).Retry();
      opened = devices.Open(exported->handle());
    }
    EXPECT_EQ(opened->device, &backend_.cuda(DeviceOf(caller)));
    const auto& allocation = opened->allocation;
    std::atomic<bool> dirty = false;
    std::byte* const base = allocation->data();
    const absl::Status status = Submit(ItemOn(base + at, base + to, &dirty, true));
    ++(status.ok() ? device_answers_ : device_errors_);
    if (status.ok()) {
      EXPECT_TRUE(IsWanted(exported->data() + to));
      EXPECT_FALSE(dirty);
      return;
    }
    EXPECT_TRUE(Fails(DeviceOf(caller))) << status;
    const bool source_intact = std::memcmp(exported->data() + at, x_.data(), x_.size()) == 0;
    if (status.code() == absl::StatusCode::kAborted) {
      EXPECT_TRUE(dirty || !allocation->usable()) << status;
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_FALSE(dirty);
      EXPECT_TRUE(source_intact) << "it may be tried again";
    }
    EXPECT_TRUE(in_place || source_intact);
  }

  // Calls of all kinds until there were enough calls, and so many faults of every kind.
  void Storm(int faults) {
    const int wanted = WantedCalls();
    std::atomic<int> next = 0;
    std::vector<std::thread> callers;
    for (int caller = 0; caller < kInFlight; ++caller) {
      callers.emplace_back([&, caller] {
        for (int i = next++; i < wanted || faults_.least() < faults; i = next++) {
          ASSERT_LT(i, 200 * wanted) << "some fault does not happen";
          CallSomehow(i, caller);
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_GE(next, wanted + kInFlight);
    EXPECT_GE(faults_.least(), faults);
    EXPECT_GT(device_answers_, wanted / 50);
    EXPECT_GT(device_errors_, wanted / 50);
    std::printf(
        "MEASURED %d calls, every kind of fault at least %d times; on device memory %d answered, "
        "%d told\n",
        next.load() - kInFlight, faults_.least(), device_answers_.load(), device_errors_.load());
  }
  void CallSomehow(int i, int caller) {
    switch (i % 5) {
      case 0:
      case 1:
        return CallInline();
      case 2:
        return CallInPlaceOnTheHost();
      case 3:
        return CallOnTheDevice(caller, /*in_place=*/true);
      default:
        return CallOnTheDevice(caller, /*in_place=*/false);
    }
  }

  // When the devices fail no more, all is well.
  void Calm() {
    for (size_t i = 0; i < backend_.size(); ++i) backend_.device(i).FailWith(nullptr);
    CallInline();
    for (size_t i = 0; i < backend_.size(); ++i) {
      CallOnTheDevice(static_cast<int>(i), /*in_place=*/true);
      EXPECT_EQ(backend_.device(i).open_mappings(), 0);
    }
    EXPECT_TRUE(engine_.Drain(absl::InfiniteFuture()));
    EXPECT_EQ(engine_.stats().inflight_bytes, 0);
  }

  testing::DeviceBackends backend_;
  Faults faults_;
  PreparedRope prepared_;
  std::vector<std::byte> x_ = std::vector<std::byte>(kStormBytes);
  std::vector<std::byte> want_;
  std::vector<std::shared_ptr<testing::FakeExport>> exports_;
  Engine engine_{StormOptions(), &backend_.backend(), Clock::Real()};
  std::atomic<int> device_answers_ = 0, device_errors_ = 0;
};

TEST_F(FaultStorm, EveryCallIsAnsweredRightlyOrTold) {
  backend_.device(0).FailWith(
      [this](const std::string& call, int64_t) { return faults_.Draw(call); });
  Storm(WantedFaults());
  EXPECT_GE(backend_.cuda(0).device_state().revivals, WantedFaults());
  Calm();
}

// In chunks that have room for several calls, so that calls of several devices run together.
class DevicesFaultStorm : public FaultStorm {
 protected:
  DevicesFaultStorm() : FaultStorm(/*devices=*/4, /*chunk_bytes=*/64 << 10) {}
};

TEST_F(DevicesFaultStorm, DevicesThatWorkAnswerEveryCallWhileTwoFail) {
  for (size_t i = 0; i < backend_.size(); ++i) {
    if (!Fails(i)) continue;
    backend_.device(i).FailWith(
        [this](const std::string& call, int64_t) { return faults_.Draw(call); });
  }
  Storm(WantedFaults() / 5);
  for (size_t i = 0; i < backend_.size(); ++i) {
    EXPECT_GT(backend_.cuda(i).device_counts().jobs, WantedCalls() / 50) << i;
    EXPECT_EQ(backend_.cuda(i).device_state().losses > 0, Fails(i)) << i;
  }
  EXPECT_GT(engine_.stats().batched_calls, engine_.stats().batches) << "some ran together";
  Calm();
}

TEST_F(DevicesFaultStorm, OneThatIsLostForGoodLeavesTheOthersAlone) {
  backend_.device(3).FailWith(
      [](const std::string&, int64_t) { return absl::UnavailableError("lost for good"); });
  CallInPlaceOnTheHost();
  EXPECT_FALSE(backend_.backend().devices().Open(exports_[3]->handle()).ok());
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kInFlight; ++caller) {
    if (DeviceOf(caller) == 3) continue;
    callers.emplace_back([this, caller] {
      for (int i = 0; i < WantedCalls() / kInFlight; ++i) CallSomehow(i, caller);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(device_errors_, 0);
  EXPECT_EQ(backend_.cuda(3).device_counts().jobs, 0);
  EXPECT_FALSE(backend_.cuda(3).device_counts().usable);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GT(backend_.cuda(i).device_counts().jobs, 0) << i;
    EXPECT_EQ(backend_.cuda(i).device_counts().jobs_that_it_failed, 0) << i;
  }
}

// One call at a time, one fault each, at every step of every chunk.
TEST_F(FaultStorm, EveryFaultAtEveryChunkBoundary) {
  const std::function<void()> ways[] = {
      [this] { CallInline(); },
      [this] { CallInPlaceOnTheHost(); },
      [this] { CallOnTheDevice(0, /*in_place=*/true); },
      [this] { CallOnTheDevice(0, /*in_place=*/false); },
  };
  testing::FakeDevice& device = backend_.device(0);
  const auto chunks = [&device] { return device.calls("Run"); };
  int64_t faults = 0, most_chunks = 0;
  for (const auto& call : ways) {
    call();  // leaves streams and memory for the ones that count
    for (const FaultKind& kind : kFaultKinds) {
      const int64_t before = device.calls(kind.call), chunks_before = chunks();
      call();
      const int64_t steps = device.calls(kind.call) - before;
      most_chunks = std::max(most_chunks, chunks() - chunks_before);
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t at = device.calls(kind.call) + step;
        device.FailWith([&](const std::string& name, int64_t number) {
          const bool hit = name == kind.call && number == at;
          faults += hit;
          return hit ? absl::Status(kind.code, name) : absl::OkStatus();
        });
        call();
        device.FailWith(nullptr);
        call();  // in a fresh context, if that was the end of the old one
      }
    }
  }
  EXPECT_GE(most_chunks, 3);
  EXPECT_GE(faults, 40);
  EXPECT_GT(device_errors_, 0);
  EXPECT_EQ(device.open_mappings(), 0);
}

}  // namespace
}  // namespace phasor::engine
