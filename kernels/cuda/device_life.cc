// SPDX-License-Identifier: Apache-2.0
// The states of a device between loss and revival, the waits between them, and who is told.
#include "kernels/cuda/device_life.h"

#include <algorithm>
#include <string>
#include <utility>

namespace phasor::cuda {
namespace {

using Kind = DeviceState::Kind;

// If a device worked for this many times its last wait, its next wait is the first one again.
constexpr int kTrust = 10;

}  // namespace

DeviceLife::DeviceLife(DeviceLifeOptions options, std::function<absl::Status()> revive)
    : options_(std::move(options)), revive_(std::move(revive)), revived_at_(options_.now()) {}

DeviceLife::Use DeviceLife::EnterIfWorking() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_.kind != Kind::kWorking) return Use();
  ++users_;
  return Use(this);
}

DeviceLife::Use DeviceLife::Enter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_.kind == Kind::kWorking) {
      ++users_;
      return Use(this);
    }
    if (!IsTimeToRevive()) return Use();
    reviving_ = true;
  }
  const absl::Status revived = revive_();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    reviving_ = false;
    if (!revived.ok()) {
      Lose(revived);
      return Use();
    }
    state_.kind = Kind::kWorking;
    state_.wait_ms = 0;
    ++state_.revivals;
    revived_at_ = options_.now();
    ++users_;
  }
  Tell();
  return Use(this);
}

bool DeviceLife::IsTimeToRevive() const {
  return state_.kind == Kind::kWaiting && !reviving_ && users_ == 0 && options_.now() >= retry_at_;
}

void DeviceLife::Leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --users_;
}

bool DeviceLife::working() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_.kind == Kind::kWorking;
}

int64_t DeviceLife::context() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_.revivals;
}

void DeviceLife::Note(const absl::Status& error) {
  if (!absl::IsUnavailable(error)) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (state_.kind != Kind::kWorking) return;  // keep the first error, which gives the cause
    ++state_.losses;
    if (options_.now() - revived_at_ >= kTrust * wait_) wait_ = std::chrono::milliseconds(0);
    Lose(error);
  }
  Tell();
}

void DeviceLife::Lose(const absl::Status& error) {
  state_.error = std::string(error.message());
  if (!options_.retry) {
    state_.kind = Kind::kLost;
    return;
  }
  wait_ = wait_.count() == 0 ? options_.first_wait : std::min(2 * wait_, options_.longest_wait);
  retry_at_ = options_.now() + wait_;
  state_.wait_ms = wait_.count();
  state_.kind = Kind::kWaiting;
}

DeviceState DeviceLife::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return state_;
}

void DeviceLife::Watch(std::function<void()> changed) {
  std::unique_lock<std::mutex> lock(watch_mutex_);
  changed_ = std::move(changed);
  told_.wait(lock, [this] { return telling_ == 0; });
}

void DeviceLife::Tell() {
  std::unique_lock<std::mutex> lock(watch_mutex_);
  if (!changed_) return;
  const std::function<void()> changed = changed_;
  ++telling_;
  lock.unlock();
  changed();
  lock.lock();
  if (--telling_ == 0) told_.notify_all();
}

}  // namespace phasor::cuda
