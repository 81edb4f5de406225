// SPDX-License-Identifier: Apache-2.0
// Acts when a GPU is lost or works again, and retries lost GPUs without any call.
#include "server/engine/device_watch.h"

#include <utility>

#include "server/base/log.h"

namespace phasor {

DeviceWatch::DeviceWatch(DeviceList devices, DeviceWatchOptions options)
    : devices_(std::move(devices)), options_(std::move(options)) {
  for (DevicePort* const device : devices_) {
    device->WatchDevice([this, device] { Changed(*device); });
    if (device->device_state().kind != DeviceState::Kind::kWorking) Changed(*device);
  }
  if (!options_.restart) thread_ = std::thread([this] { Retry(); });
}

DeviceWatch::~DeviceWatch() {
  stop_.Stop();
  if (thread_.joinable()) thread_.join();
  for (DevicePort* const device : devices_) device->WatchDevice(nullptr);
}

void DeviceWatch::Retry() {
  while (!stop_.WaitFor(options_.period)) {
    for (DevicePort* const device : devices_) device->Retry();
  }
}

void DeviceWatch::WhenRestartIsDue(std::function<void()> restart) {
  MutexLock lock(&mu_);
  restart_ = std::move(restart);
  if (restart_due_ && restart_) restart_();
}

void DeviceWatch::Changed(const DevicePort& device) {
  MutexLock lock(&mu_);  // so that the last report is the current state
  const DeviceState state = device.device_state();
  options_.changed(device);
  if (state.kind == DeviceState::Kind::kWorking) {
    Log(LogLevel::kWarn, "device revived",
        {{"device", device.device_number()}, {"revivals", state.revivals}});
    return;
  }
  Log(LogLevel::kError, "device lost",
      {{"device", device.device_number()},
       {"error", state.error},
       {"then", options_.restart ? "restart" : "retry"},
       {"wait_ms", state.wait_ms}});
  if (!options_.restart) return;
  options_.stop_serving();
  if (std::exchange(restart_due_, true)) return;
  if (restart_) restart_();
}

}  // namespace phasor
