// SPDX-License-Identifier: Apache-2.0
// Reports when the GPU is lost or works again, and retries a lost GPU without any call.
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
  bool restart = false;                      // whether a loss asks for a new process
  std::function<void(bool)> working;         // called when the state changes; true: it works
  std::function<void()> stop_serving;        // called before a restart is asked for
  absl::Duration period = absl::Seconds(1);  // how often a lost GPU is retried, unless it restarts
};

// Watches a GPU and logs changes. The functions of the options are called from any thread.
// Threads: any; it has one of its own for retries.
class DeviceWatch {
 public:
  // Starts to watch. A GPU that is already lost is reported. `port` must outlive this.
  DeviceWatch(DevicePort* port, DeviceWatchOptions options);
  // Calls no function afterwards.
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
  bool restart_due_ = false;       // guarded by mutex_
  std::mutex turn_mutex_;
  std::condition_variable ending_changed_;
  bool ending_ = false;  // guarded by turn_mutex_
  std::thread thread_;   // not started if a loss asks for a restart
};

}  // namespace phasor

#endif  // PHASOR_SERVER_ENGINE_DEVICE_WATCH_H_
