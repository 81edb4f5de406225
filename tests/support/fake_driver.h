// SPDX-License-Identifier: Apache-2.0
// A GPU on the host: its memory is the host's, its kernels run here. It does work only when a
// stream is synchronized, as a device may, counts calls, and fails the ones that it is told to.
#ifndef PHASOR_TESTS_SUPPORT_FAKE_DRIVER_H_
#define PHASOR_TESTS_SUPPORT_FAKE_DRIVER_H_

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/run_on_host.h"
#include "kernels/text.h"

namespace phasor::testing {

// What a fake device has done and what it should do; shared by a test and the driver that a backend
// owns. Threads: any.
class FakeDevice {
 public:
  // Name of a call, e.g. "Allocate", and how often it was called before, over all streams.
  using Fault = std::function<absl::Status(const std::string& call, int64_t number)>;

  void FailWith(Fault fault) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fault_ = std::move(fault);
  }
  // How long a trip takes: a Synchronize that has something to wait for.
  void SetTrip(absl::Duration trip) {
    const std::lock_guard<std::mutex> lock(mutex_);
    trip_ = trip;
  }
  int64_t calls(const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_[call];
  }
  // Bytes of the device and pinned, now and at most.
  int64_t bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return bytes_;
  }
  int64_t peak_bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peak_bytes_;
  }
  // Streams that had work queued at once, at most.
  int64_t most_busy_streams() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return most_busy_;
  }

 private:
  friend class FakeDriver;

  absl::Status Enter(const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t number = calls_[call]++;
    if (!lost_.ok()) return lost_;
    if (!fault_) return absl::OkStatus();
    absl::Status status = fault_(call, number);
    if (absl::IsUnavailable(status)) lost_ = status;  // and every later call fails too
    return status;
  }
  void Hold(int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, bytes_);
  }
  absl::Duration trip() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return trip_;
  }
  void SetBusy(int change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    busy_ += change;
    most_busy_ = std::max(most_busy_, busy_);
  }

  std::mutex mutex_;
  Fault fault_;
  absl::Duration trip_;
  absl::Status lost_;
  std::map<std::string, int64_t> calls_;
  int64_t bytes_ = 0, peak_bytes_ = 0, busy_ = 0, most_busy_ = 0;
};

// Threads: any; one stream by one at a time.
class FakeDriver final : public cuda::Driver {
 public:
  explicit FakeDriver(std::shared_ptr<FakeDevice> device) : device_(std::move(device)) {
    info_.name = "Fake GPU";
  }

  const cuda::DeviceInfo& device() const override { return info_; }

  absl::StatusOr<cuda::Stream> CreateStream() override {
    if (absl::Status s = device_->Enter("CreateStream"); !s.ok()) return s;
    return static_cast<cuda::Stream>(new Queue);
  }
  void DestroyStream(cuda::Stream stream) override { delete static_cast<Queue*>(stream); }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override { return New("Allocate", bytes); }
  void Free(std::byte* memory) override { Delete(memory); }
  absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes) override {
    return New("AllocatePinned", bytes);
  }
  void FreePinned(std::byte* memory) override { Delete(memory); }

  absl::Status CopyToDevice(std::byte* device, const std::byte* pinned, int64_t bytes,
                            cuda::Stream stream) override {
    return Queued("CopyToDevice", stream,
                  [=] { std::memcpy(device, pinned, static_cast<size_t>(bytes)); });
  }
  absl::Status CopyToHost(std::byte* pinned, const std::byte* device, int64_t bytes,
                          cuda::Stream stream) override {
    return Queued("CopyToHost", stream,
                  [=] { std::memcpy(pinned, device, static_cast<size_t>(bytes)); });
  }
  absl::Status Run(const cuda::Launch& launch, cuda::Stream stream) override {
    return Queued("Run", stream, [=] { cuda::RunOnHost(launch.kernel, launch.batch); });
  }
  absl::Status Synchronize(cuda::Stream stream) override {
    auto& work = static_cast<Queue*>(stream)->work;
    if (!work.empty()) device_->SetBusy(-1);
    absl::Status status = device_->Enter("Synchronize");
    if (status.ok()) {
      if (!work.empty()) absl::SleepFor(device_->trip());
      for (const auto& step : work) step();
    }
    work.clear();
    return status;
  }

 private:
  struct Queue {
    std::vector<std::function<void()>> work;
  };
  static constexpr int64_t kHeader = 256;  // keeps the size in front of the memory

  absl::Status Queued(const std::string& call, cuda::Stream stream, std::function<void()> step) {
    if (absl::Status s = device_->Enter(call); !s.ok()) return s;
    auto& work = static_cast<Queue*>(stream)->work;
    if (work.empty()) device_->SetBusy(1);
    work.push_back(std::move(step));
    return absl::OkStatus();
  }
  absl::StatusOr<std::byte*> New(const std::string& call, int64_t bytes) {
    if (absl::Status s = device_->Enter(call); !s.ok()) return s;
    auto* const block = static_cast<std::byte*>(
        std::aligned_alloc(kHeader, static_cast<size_t>(kHeader + cuda::AlignUp(bytes, kHeader))));
    std::memcpy(block, &bytes, sizeof bytes);
    std::memset(block + kHeader, 0xCD, static_cast<size_t>(bytes));  // nobody may rely on zeros
    device_->Hold(bytes);
    return block + kHeader;
  }
  void Delete(std::byte* memory) {
    int64_t bytes = 0;
    std::memcpy(&bytes, memory - kHeader, sizeof bytes);
    device_->Hold(-bytes);
    std::free(memory - kHeader);
  }

  const std::shared_ptr<FakeDevice> device_;
  cuda::DeviceInfo info_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_FAKE_DRIVER_H_
