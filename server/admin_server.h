// SPDX-License-Identifier: Apache-2.0
// AdminServer: a small second server with health and channelz, without encryption, on its own
// addresses. For probes without TLS and for debugging.
#ifndef PHASOR_SERVER_ADMIN_SERVER_H_
#define PHASOR_SERVER_ADMIN_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/options.h"

namespace phasor {

// The running admin server. Threads: any thread may call any method.
class AdminServer {
 public:
  // Serves on --admin-listen with the limits of `options`, and reports the health of `services`.
  // INVALID_ARGUMENT: not an address. UNAVAILABLE: an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(
      const ServerOptions& options, const std::vector<std::string>& services);
  virtual ~AdminServer() = default;

  virtual std::vector<std::string> listeners() const = 0;
  // Health is NOT_SERVING from now on.
  virtual void StopServing() = 0;
  // Says whether the main listener accepts connections. While it does not, health is NOT_SERVING.
  virtual void SetAccepting(bool accepting) = 0;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_ADMIN_SERVER_H_
