// SPDX-License-Identifier: Apache-2.0
// Whether a device may be used. One that was lost is tried again in a fresh context, by whoever
// wants it next, once a wait is over and nobody uses the old one; waits double.
#ifndef PHASOR_KERNELS_CUDA_DEVICE_LIFE_H_
#define PHASOR_KERNELS_CUDA_DEVICE_LIFE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "kernels/backend/device_port.h"

namespace phasor::cuda {

struct DeviceLifeOptions {
  using Tick = std::chrono::steady_clock::time_point;

  bool retry = false;  // else a lost device is not used again
  std::chrono::milliseconds first_wait{1000};
  std::chrono::milliseconds longest_wait{5 * 60 * 1000};
  std::function<Tick()> now = std::chrono::steady_clock::now;
};

// Threads: any.
class DeviceLife {
 public:
  // `revive` makes a fresh context and forgets all that was in the old one; nobody uses the device
  // meanwhile.
  DeviceLife(DeviceLifeOptions options, std::function<absl::Status()> revive);

  // The device is not taken away while one lives; it may be lost. False: it is lost already.
  class Use {
   public:
    Use() = default;
    explicit Use(DeviceLife* life) : life_(life) {}
    Use(Use&& other) noexcept : life_(std::exchange(other.life_, nullptr)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (life_ != nullptr) life_->Leave();
    }
    explicit operator bool() const { return life_ != nullptr; }

   private:
    DeviceLife* life_ = nullptr;
  };
  // Revives a lost device if it is time to.
  Use Enter();
  Use EnterIfWorking();

  bool working() const;
  // Counts contexts: what was made in another one is gone.
  int64_t context() const;

  // An error of the device; UNAVAILABLE: it is lost.
  void Note(const absl::Status& error);
  DeviceState state() const;
  // As DevicePort::WatchDevice.
  void Watch(std::function<void()> changed);

 private:
  void Leave();
  bool IsTimeToRevive() const;
  void Lose(const absl::Status& error);
  void Tell();

  const DeviceLifeOptions options_;
  const std::function<absl::Status()> revive_;
  mutable std::mutex mutex_;
  DeviceState state_;
  std::chrono::milliseconds wait_{0};  // before the attempt that is next or was last
  DeviceLifeOptions::Tick retry_at_;
  DeviceLifeOptions::Tick revived_at_;
  int64_t users_ = 0;
  bool reviving_ = false;
  std::mutex watch_mutex_;
  std::condition_variable told_;
  std::function<void()> changed_;
  int telling_ = 0;  // calls of `changed_` that go on
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_DEVICE_LIFE_H_
