// SPDX-License-Identifier: Apache-2.0
// Server: a running server with its backend, engine and gRPC listeners. main.cc adds flags and
// signals; tests start it directly.
#ifndef PHASOR_SERVER_SERVER_H_
#define PHASOR_SERVER_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend/backend.h"
#include "server/config/options.h"
#include "server/config/reload.h"

namespace phasor {

namespace telemetry {
struct Refusals;
}  // namespace telemetry

// A running server. Threads: any thread may call any method.
class Server {
 public:
  // Starts to serve. INVALID_ARGUMENT: options or credential files are invalid.
  // FAILED_PRECONDITION: this host lacks the backend, or tables cannot be loaded. INTERNAL: the
  // backend computes wrong bits (SelfTest). UNAVAILABLE: an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);
  // Uses the caller's backend instead of `options.backend`. For tests.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       std::unique_ptr<Backend> backend);
  virtual ~Server() = default;

  // Addresses that accept calls, as clients write them: "127.0.0.1:40123", "unix:/path".
  virtual std::vector<std::string> listeners() const = 0;
  // Addresses of --admin-listen and --metrics-listen in this form, e.g. "127.0.0.1:9464".
  virtual std::vector<std::string> admin_listeners() const = 0;
  virtual std::vector<std::string> metrics_listeners() const = 0;
  // Name of the backend that computes, also if the option is "auto".
  virtual std::string backend() const = 0;
  // Number, name and UUID of each of its devices.
  virtual std::vector<std::string> devices() const = 0;
  // See server/telemetry/snapshot.h.
  virtual telemetry::Refusals security_stats() const = 0;

  // Reads certificates, tokens and policy again. INVALID_ARGUMENT: a file is invalid. Files of its
  // kind then stay as they were.
  virtual absl::Status ReloadCredentials() = 0;

  // Takes over those of `options` that can change while the server runs: all of them, or none on an
  // error. The caller sets the log level, which belongs to the process. INVALID_ARGUMENT,
  // NOT_FOUND: as in ServerOptions::Validate.
  virtual absl::StatusOr<ReloadReport> Reload(const ServerOptions& options) = 0;

  // Has gRPC receive on as few of its threads as `cores` cores are good for, and keeps those awake.
  // It receives on all of them while small and large messages come together, while messages are
  // very large, and if there are GPUs. If one thread is enough and only large calls come, that
  // thread also computes calls of up to 16 times options.inline_bytes. The threads belong to the
  // process: one server of it may be told so.
  virtual void ReceiveOnFewThreads(int cores) = 0;

  // Sets a function to be called once, from any thread, when a GPU is lost and
  // options.device_fault is "restart". The server then no longer serves, and its process must be
  // shut down and replaced. If that is already so, calls it at once.
  virtual void WhenRestartIsDue(std::function<void()> restart) = 0;

  // Drains and stops the server. Health becomes NOT_SERVING and drain_delay passes. Then listeners
  // close, calls whose request has arrived are answered, later calls are refused with UNAVAILABLE,
  // and connections close when their answers have arrived. Calls that take longer than
  // drain_timeout are cancelled. Returns true if none was and every answer arrived. May be called
  // again.
  virtual bool Shutdown() = 0;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_SERVER_H_
