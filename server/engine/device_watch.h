// SPDX-License-Identifier: Apache-2.0
// What follows when the device is lost or works again, and trying it again without any call.
#ifndef PHASOR_SERVER_ENGINE_DEVICE_WATCH_H_
#define PHASOR_SERVER_ENGINE_DEVICE_WATCH_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/time/time.h"
#include "kernels/backend/device_port.h"

namespace phasor {

struct DeviceWatchOptions {
  bool restart = false;                // a device that is lost asks for another process
  std::function<void(bool)> working;   // called with whether it works, whenever that has changed
  std::function<void()> stop_serving;  // called before a restart is asked for
  absl::Duration period = absl::Seconds(1);  // how often a device that is not to restart is retried
};

// Logs what changes. Threads: any, and one of its own that retries; the functions are called from
// any thread.
class DeviceWatch {
 public:
  // From here on; a device that is lost already is seen. `port` must outlive this.
  DeviceWatch(DevicePort* port, DeviceWatchOptions options);
  // No function is called any more.
  ~DeviceWatch();

  // As Server::WhenRestartIsDue.
  void WhenRestartIsDue(std::function<void()> restart);

 private:
  void Changed();
  void Retry();

  DevicePort& port_;
  const DeviceWatchOptions options_;
  std::mutex mutex_;
  std::function<void()> restart_;  // guarded by the mutex
  bool restart_due_ = false;       // the same
  std::mutex turn_mutex_;
  std::condition_variable ending_changed_;
  bool ending_ = false;  // guarded by turn_mutex_
  std::thread thread_;   // none if a restart follows
};

}  // namespace phasor

#endif  // PHASOR_SERVER_ENGINE_DEVICE_WATCH_H_
