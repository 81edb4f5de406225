// SPDX-License-Identifier: Apache-2.0
// A second, small server beside the real one: health and channelz without encryption, on addresses
// of its own. For probes that speak no TLS, and for whoever debugs.
#ifndef PHASOR_SERVER_ADMIN_SERVER_H_
#define PHASOR_SERVER_ADMIN_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/options.h"

namespace phasor {

// Threads: all methods from any thread.
class AdminServer {
 public:
  // Serves on --admin-listen, with the limits of `options`; `services` are those whose health it
  // tells. INVALID_ARGUMENT: an address; UNAVAILABLE: it cannot be bound.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(
      const ServerOptions& options, const std::vector<std::string>& services);
  virtual ~AdminServer() = default;

  virtual std::vector<std::string> listeners() const = 0;
  // Health is NOT_SERVING from now on.
  virtual void StopServing() = 0;
  // Whether the main listener takes connections: health is NOT_SERVING as long as it does not.
  virtual void SetAccepting(bool accepting) = 0;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_ADMIN_SERVER_H_
