// SPDX-License-Identifier: Apache-2.0
// A running server: backend, engine, gRPC listeners. main.cc adds flags and signals to it; tests
// start it directly.
#ifndef PHASOR_SERVER_SERVER_H_
#define PHASOR_SERVER_SERVER_H_

#include <cstdint>
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

// What was refused since the start.
struct SecurityStats {
  int64_t unauthenticated = 0;
  int64_t permission_denied = 0;
  int64_t tls_handshakes_failed = 0;  // of all servers in this process
};

// Threads: all methods from any thread.
class Server {
 public:
  // Starts serving. INVALID_ARGUMENT: options, or files of credentials; FAILED_PRECONDITION:
  // backend missing on this host, or tables that cannot be loaded; INTERNAL: the backend computes
  // wrong bits (SelfTest); UNAVAILABLE: an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options);
  // The same on a backend of the caller's, for tests; `options.backend` is not used.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       std::unique_ptr<Backend> backend);
  virtual ~Server() = default;

  // Addresses that accept calls, as a client would write them: "127.0.0.1:40123", "unix:/path".
  virtual std::vector<std::string> listeners() const = 0;
  // The same of --admin-listen, and of --metrics-listen: "127.0.0.1:9464".
  virtual std::vector<std::string> admin_listeners() const = 0;
  virtual std::vector<std::string> metrics_listeners() const = 0;
  // Name of what computes, e.g. what "auto" came to.
  virtual std::string backend() const = 0;
  virtual SecurityStats security_stats() const = 0;

  // Reads certificates, tokens and policy again. INVALID_ARGUMENT: a file is wrong; what the server
  // had of its kind stays.
  virtual absl::Status ReloadCredentials() = 0;

  // Takes over what of `options` can change while it runs, all of it or, on an error, nothing. The
  // level of the log belongs to the process: the caller sets it. INVALID_ARGUMENT, NOT_FOUND: as
  // ServerOptions::Validate.
  virtual absl::StatusOr<ReloadReport> Reload(const ServerOptions& options) = 0;

  // `restart` is called once, from any thread, when the device is lost and options.device_fault is
  // "restart": the server does not serve any more and is to be shut down and its process replaced.
  // At once if that is so already.
  virtual void WhenRestartIsDue(std::function<void()> restart) = 0;

  // Health turns NOT_SERVING and drain_delay passes. Then listeners close, calls whose request has
  // arrived are answered, later ones are refused with UNAVAILABLE, and connections close. Calls
  // that take longer than drain_timeout are cancelled. Returns true when none was. Idempotent.
  virtual bool Shutdown() = 0;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_SERVER_H_
