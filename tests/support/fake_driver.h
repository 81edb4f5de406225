// SPDX-License-Identifier: Apache-2.0
// A GPU on the host: its memory is host memory and its kernels run on the host. It works only when
// a stream is synchronized, as a GPU may, counts calls, and fails those that it is told to fail.
// Empty copies and work without a stream end the process.
#ifndef PHASOR_TESTS_SUPPORT_FAKE_DRIVER_H_
#define PHASOR_TESTS_SUPPORT_FAKE_DRIVER_H_

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/base/text.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/run_on_host.h"
#include "tests/support/fake_export.h"

namespace phasor::testing {

// What a fake device has done and what it should do; shared by a test and the driver that a backend
// owns. Threads: any.
class FakeDevice {
 public:
  // Name of a call, e.g. "Allocate", and how often it was called before, over all streams. A call
  // that fails with UNAVAILABLE loses the device: all fail from then on, until a Reset that does
  // not. Of the work that a failing Synchronize waits for, the last step is done
  // by half.
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

  // Memory of another process on this device.
  std::shared_ptr<FakeExport> Export(int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    static std::atomic<int64_t> last_handle = 0;  // no two devices share one
    auto made = std::make_shared<FakeExport>(bytes, ++last_handle);
    exports_.push_back(made);
    return made;
  }
  // Mappings of such memory that are open.
  int64_t open_mappings() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return open_mappings_;
  }

 private:
  friend class FakeDriver;

  absl::Status Enter(const std::string& call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int64_t number = calls_[call]++;
    if (!lost_.ok() && call != "Reset") return lost_;
    absl::Status status = fault_ ? fault_(call, number) : absl::OkStatus();
    if (absl::IsUnavailable(status)) lost_ = status;  // and every later call fails too
    if (call != "Reset" || !status.ok()) return status;
    lost_ = absl::OkStatus();
    open_mappings_ = 0;
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
  // While the device works, it can touch what was exported.
  void SetWorking(bool working) {
    const std::lock_guard<std::mutex> lock(mutex_);
    working_ += working ? 1 : -1;
    if (working_ != (working ? 1 : 0)) return;
    for (const auto& memory : exports_) memory->SetTouchable(working);
  }
  std::shared_ptr<FakeExport> FindExport(const IpcHandle& handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& memory : exports_) {
      if (memory->HandleAt(FakeExport::OffsetOf(handle)) == handle) return memory;
    }
    return nullptr;
  }
  void CountMappings(int change) {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_mappings_ += change;
  }

  std::mutex mutex_;
  Fault fault_;
  absl::Duration trip_;
  absl::Status lost_;
  std::map<std::string, int64_t> calls_;
  int64_t bytes_ = 0, peak_bytes_ = 0, busy_ = 0, most_busy_ = 0, working_ = 0, open_mappings_ = 0;
  std::vector<std::shared_ptr<FakeExport>> exports_;
};

// Threads: any; one stream by one at a time.
class FakeDriver final : public cuda::Driver {
 public:
  // `number` is also the first digit of the UUID.
  explicit FakeDriver(std::shared_ptr<FakeDevice> device, int number = 0)
      : device_(std::move(device)) {
    info_.number = number;
    info_.name = "Fake GPU";
    for (size_t i = 0; i < info_.uuid.size(); ++i) info_.uuid[i] = static_cast<uint8_t>(i);
    info_.uuid[0] = static_cast<uint8_t>(number << 4);
  }

  const cuda::DeviceInfo& device() const override { return info_; }

  absl::StatusOr<cuda::Stream> CreateStream() override {
    if (absl::Status s = device_->Enter("CreateStream"); !s.ok()) return s;
    auto* const queue = new Queue;
    const std::lock_guard<std::mutex> lock(mutex_);
    queues_.insert(queue);
    return static_cast<cuda::Stream>(queue);
  }
  void DestroyStream(cuda::Stream stream) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (queues_.erase(static_cast<Queue*>(stream)) != 1) std::abort();
    delete static_cast<Queue*>(stream);
  }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override { return New("Allocate", bytes); }
  void Free(std::byte* memory) override { Delete(memory); }
  absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes) override {
    return New("AllocatePinned", bytes);
  }
  void FreePinned(std::byte* memory) override { Delete(memory); }

  absl::StatusOr<cuda::IpcMapping> OpenIpc(const IpcHandle& handle) override {
    if (absl::Status s = device_->Enter("OpenIpc"); !s.ok()) return s;
    const auto memory = device_->FindExport(handle);
    if (memory == nullptr) return absl::InvalidArgumentError("fake: no such handle");
    device_->CountMappings(1);
    const int64_t offset = FakeExport::OffsetOf(handle);
    return cuda::IpcMapping{memory->device_view() + offset, memory->bytes() - offset};
  }
  void CloseIpc(const cuda::IpcMapping&) override { device_->CountMappings(-1); }

  absl::Status CopyToDevice(std::byte* device, const std::byte* host, int64_t bytes,
                            cuda::Stream stream) override {
    if (bytes <= 0) std::abort();  // a trip of nothing
    return Queued("CopyToDevice", stream,
                  [=](bool torn) { Copy(device, host, torn ? bytes / 2 : bytes); });
  }
  absl::Status CopyToHost(std::byte* host, const std::byte* device, int64_t bytes,
                          cuda::Stream stream) override {
    if (bytes <= 0) std::abort();
    return Queued("CopyToHost", stream,
                  [=](bool torn) { Copy(host, device, torn ? bytes / 2 : bytes); });
  }
  absl::Status Run(const cuda::Launch& launch, cuda::Stream stream) override {
    // A small arena travels with the launch. A large one must be on the device.
    const cuda::Batch& batch = launch.batch;
    if (batch.arena_bytes > cuda::kInlineBytes) {
      return Queued("Run", stream,
                    [=](bool torn) { RunKernel(launch.kernel, batch, batch.arena, torn); });
    }
    const auto arena = std::make_shared<InlineArena>();
    std::memcpy(arena->bytes, batch.host, static_cast<size_t>(batch.arena_bytes));
    return Queued("Run", stream,
                  [=](bool torn) { RunKernel(launch.kernel, batch, arena->bytes, torn); });
  }
  absl::Status Synchronize(cuda::Stream stream) override {
    auto& work = static_cast<Queue*>(stream)->work;
    if (!work.empty()) device_->SetBusy(-1);
    const absl::Status status = device_->Enter("Synchronize");
    if (!work.empty()) {
      if (status.ok()) absl::SleepFor(device_->trip());
      device_->SetWorking(true);
      for (const auto& step : work) step(/*torn=*/!status.ok() && &step == &work.back());
      device_->SetWorking(false);
    }
    work.clear();
    return status;
  }

  absl::Status Reset() override {
    if (absl::Status s = device_->Enter("Reset"); !s.ok()) return s;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Queue* const queue : queues_) delete queue;
    queues_.clear();
    for (std::byte* const block : blocks_) Release(block);
    blocks_.clear();
    return absl::OkStatus();
  }

 private:
  struct Queue {
    std::vector<std::function<void(bool torn)>> work;
  };
  static constexpr int64_t kHeader = 256;  // keeps the size in front of the memory

  static void Copy(std::byte* to, const std::byte* from, int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  struct InlineArena {
    alignas(16) std::byte bytes[cuda::kInlineBytes];
  };
  static void RunKernel(const cuda::KernelId& kernel, cuda::Batch batch, const std::byte* arena,
                        bool torn) {
    if (torn) batch.blocks = (batch.blocks + 1) / 2;
    batch.host = arena;
    cuda::RunOnHost(kernel, batch);
  }
  absl::Status Queued(const std::string& call, cuda::Stream stream,
                      std::function<void(bool torn)> step) {
    if (stream == nullptr) std::abort();
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
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_.insert(block);
    return block + kHeader;
  }
  void Delete(std::byte* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.erase(memory - kHeader) != 1) std::abort();  // of another context
    Release(memory - kHeader);
  }
  void Release(std::byte* block) {
    int64_t bytes = 0;
    std::memcpy(&bytes, block, sizeof bytes);
    device_->Hold(-bytes);
    std::free(block);
  }

  const std::shared_ptr<FakeDevice> device_;
  cuda::DeviceInfo info_;
  std::mutex mutex_;
  std::set<Queue*> queues_;
  std::set<std::byte*> blocks_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_FAKE_DRIVER_H_
