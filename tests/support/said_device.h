// SPDX-License-Identifier: Apache-2.0
// A device that is what a test says it is.
#ifndef PHASOR_TESTS_SUPPORT_SAID_DEVICE_H_
#define PHASOR_TESTS_SUPPORT_SAID_DEVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend/device_port.h"
#include "kernels/base/text.h"

namespace phasor::testing {

// Its UUID is "GPU-" and its number. Threads: any, but for SetOpen and SetHeld.
class SaidDevice final : public DevicePort {
 public:
  using Kind = DeviceState::Kind;
  using Opened = absl::StatusOr<std::shared_ptr<const DeviceAllocation>>;

  explicit SaidDevice(int number = 0) : number_(number) {}

  int device_number() const override { return number_; }
  std::string device_name() const override { return "said"; }
  std::string device_uuid() const override { return StrCat("GPU-", number_); }
  Opened Open(const IpcHandle&) override { return opened_; }
  bool Holds(const std::byte* begin, int64_t bytes) const override {
    return held_ != nullptr && begin <= held_ && held_ < begin + bytes;
  }
  absl::Status Read(const std::byte*, int64_t bytes, std::byte* out) const override {
    std::memset(out, number_, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  void SetCopyBudget(CopyBudget) override {}
  DeviceState device_state() const override { return {.kind = kind_, .error = "fault"}; }
  DeviceCounts device_counts() const override { return {}; }
  void Retry() override {
    if (kind_ == Kind::kWaiting) Become(Kind::kWorking);
  }
  void WatchDevice(std::function<void()> changed) override { changed_ = std::move(changed); }

  void Become(Kind kind) {
    kind_ = kind;
    if (changed_) changed_();
  }
  // What Open returns.
  void SetOpen(Opened opened) { opened_ = std::move(opened); }
  // The one byte of an open allocation.
  void SetHeld(const std::byte* held) { held_ = held; }

 private:
  const int number_;
  std::atomic<Kind> kind_ = Kind::kWorking;
  std::function<void()> changed_;
  Opened opened_ = absl::UnavailableError("none");
  const std::byte* held_ = nullptr;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_SAID_DEVICE_H_
