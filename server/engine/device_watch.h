// SPDX-License-Identifier: Apache-2.0
// Reports when a GPU is lost or works again, and retries lost GPUs without any call.
#ifndef PHASOR_SERVER_ENGINE_DEVICE_WATCH_H_
#define PHASOR_SERVER_ENGINE_DEVICE_WATCH_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "kernels/backend/device_list.h"
#include "server/base/mutex.h"
#include "server/base/stop_signal.h"

namespace phasor {

struct DeviceWatchOptions {
  bool restart = false;  // whether a loss asks for a new process
  // Called when the state of `device` has changed. One call at a time.
  std::function<void(const DevicePort& device)> changed;
  std::function<void()> stop_serving;        // called before a restart is asked for
  absl::Duration period = absl::Seconds(1);  // how often a lost GPU is retried, unless it restarts
};

// Watches GPUs and logs changes. The functions of the options are called from any thread.
// Threads: any; it has one of its own for retries.
class DeviceWatch {
 public:
  // Starts to watch. GPUs that are already lost are reported. `devices` must outlive this.
  DeviceWatch(DeviceList devices, DeviceWatchOptions options);
  // Calls no function afterwards.
  ~DeviceWatch();

  // As Server::WhenRestartIsDue.
  void WhenRestartIsDue(std::function<void()> restart);

 private:
  void Changed(const DevicePort& device);
  void Retry();

  const DeviceList devices_;
  const DeviceWatchOptions options_;
  Mutex mu_;
  std::function<void()> restart_ ABSL_GUARDED_BY(mu_);
  bool restart_due_ ABSL_GUARDED_BY(mu_) = false;
  StopSignal stop_;
  std::thread thread_;  // not started if a loss asks for a restart
};

}  // namespace phasor

#endif  // PHASOR_SERVER_ENGINE_DEVICE_WATCH_H_
