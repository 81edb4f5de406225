// SPDX-License-Identifier: Apache-2.0
// A GPU that does nothing: every call returns at once, so what is counted is the host's own work.
// It ends the process if a launch needs a copy to or from the device, or if memory is allocated
// after the first launch.
#ifndef PHASOR_BENCH_INSTRUCTIONS_IDLE_DRIVER_H_
#define PHASOR_BENCH_INSTRUCTIONS_IDLE_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "bench/harness.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch.h"

namespace phasor::bench {

// One device, whose memory is host memory that kernels never touch. Threads: one at a time.
class IdleDriver final : public cuda::Driver {
 public:
  static constexpr int64_t kExportedBytes = 1 << 20;

  const cuda::DeviceInfo& device() const override { return info_; }
  absl::StatusOr<cuda::Stream> CreateStream() override { return static_cast<cuda::Stream>(this); }
  void DestroyStream(cuda::Stream) override {}
  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override { return New(bytes); }
  void Free(std::byte* memory) override { std::free(memory); }
  absl::StatusOr<std::byte*> AllocatePinned(int64_t bytes) override { return New(bytes); }
  void FreePinned(std::byte* memory) override { std::free(memory); }
  absl::StatusOr<cuda::IpcMapping> OpenIpc(const IpcHandle&) override {
    return cuda::IpcMapping{exported_, kExportedBytes};
  }
  void CloseIpc(const cuda::IpcMapping&) override {}
  absl::Status CopyToDevice(std::byte*, const std::byte*, int64_t, cuda::Stream) override {
    Die("a copy to the device");
  }
  absl::Status CopyToHost(std::byte*, const std::byte*, int64_t, cuda::Stream) override {
    Die("a copy from the device");
  }
  absl::Status Run(const cuda::Launch& launch, cuda::Stream) override {
    if (launch.batch.arena_bytes > cuda::kInlineBytes) Die("an arena that is not an argument");
    ++launches_;
    return absl::OkStatus();
  }
  absl::Status Synchronize(cuda::Stream) override { return absl::OkStatus(); }
  absl::Status Reset() override { Die("a reset"); }

 private:
  std::byte* New(int64_t bytes) const {
    if (launches_ > 0) Die("memory is allocated after the first launch");
    return static_cast<std::byte*>(std::aligned_alloc(256, static_cast<size_t>(bytes)));
  }

  const cuda::DeviceInfo info_ = {.name = "idle", .uuid = {1}, .processors = 132};
  std::byte* const exported_ = New(kExportedBytes);
  int64_t launches_ = 0;
};

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_INSTRUCTIONS_IDLE_DRIVER_H_
