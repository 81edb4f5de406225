// SPDX-License-Identifier: Apache-2.0
// What follows when the device is lost or works again.
#ifndef PHASOR_SERVER_DEVICE_WATCH_H_
#define PHASOR_SERVER_DEVICE_WATCH_H_

#include <functional>
#include <mutex>

#include "kernels/device_port.h"

namespace phasor {

struct DeviceWatchOptions {
  bool restart = false;                // a device that is lost asks for another process
  std::function<void(bool)> working;   // called with whether it works, whenever that has changed
  std::function<void()> stop_serving;  // called before a restart is asked for
};

// Logs what changes. Threads: any; the functions are called from any thread.
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

  DevicePort& port_;
  const DeviceWatchOptions options_;
  std::mutex mutex_;
  std::function<void()> restart_;  // guarded by the mutex
  bool restart_due_ = false;       // the same
};

}  // namespace phasor

#endif  // PHASOR_SERVER_DEVICE_WATCH_H_
