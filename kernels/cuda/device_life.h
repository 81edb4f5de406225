// SPDX-License-Identifier: Apache-2.0
// Decides whether a device may be used. After a loss, the next caller that wants the device tries
// it again in a fresh context, once a wait is over and nobody uses the old context. Each wait is
// twice the one before.
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

// Whether and when a lost device is tried again.
struct DeviceLifeOptions {
  using Tick = std::chrono::steady_clock::time_point;

  bool retry = false;  // false: a lost device is not used again
  std::chrono::milliseconds first_wait{1000};
  std::chrono::milliseconds longest_wait{5 * 60 * 1000};
  std::function<Tick()> now = std::chrono::steady_clock::now;
};

// Counts the users of a device, records its loss and revives it. Threads: any.
class DeviceLife {
 public:
  // `revive` makes a fresh context and forgets everything in the old one. Nobody uses the device
  // while it runs.
  DeviceLife(DeviceLifeOptions options, std::function<absl::Status()> revive);

  // A use of the device. While one exists, no fresh context is made, but the device may be lost. An
  // empty one (false) means that the device is lost.
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
  // Also revives a lost device if its wait is over and nobody uses it.
  Use Enter();
  Use EnterIfWorking();

  bool working() const;
  // The number of the context. What was made in a context with another number is gone.
  int64_t context() const;

  // Records an error of the device. UNAVAILABLE means that the device is lost; others are ignored.
  void Note(const absl::Status& error);
  DeviceState state() const;
  // See DevicePort::WatchDevice.
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
  std::chrono::milliseconds wait_{0};  // before the next attempt, or before the last one
  DeviceLifeOptions::Tick retry_at_;
  DeviceLifeOptions::Tick revived_at_;
  int64_t users_ = 0;
  bool reviving_ = false;
  std::mutex watch_mutex_;
  std::condition_variable told_;
  std::function<void()> changed_;
  int telling_ = 0;  // calls of `changed_` in progress
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_DEVICE_LIFE_H_
