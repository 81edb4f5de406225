// SPDX-License-Identifier: Apache-2.0
// What a caller can set: for a client, and for one call.
#ifndef PHASOR_CLIENT_OPTIONS_H_
#define PHASOR_CLIENT_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/request/request.h"

namespace phasor {

// TLS to a server. Files are PEM, and looked at again from time to time for new connections.
struct TlsOptions {
  std::string ca_file = {};    // who signs servers' certificates; empty: the system's roots
  std::string cert_file = {};  // the client's own, if the server asks for one; with key_file
  std::string key_file = {};
  // Name that the server's certificate must have; empty: the host of the target.
  std::string server_name = {};
};

struct ClientOptions {
  // Per call, retries included; CallOptions can say otherwise. > 0.
  absl::Duration timeout = absl::Seconds(10);
  // Attempts of one call, the first included. Only UNAVAILABLE is tried again. Range [1, 10].
  int max_attempts = 3;
  // Waits between attempts grow from the first to the second, with jitter. A server's
  // grpc-retry-pushback-ms replaces them.
  absl::Duration initial_backoff = absl::Milliseconds(25);
  absl::Duration max_backoff = absl::Seconds(1);
  // Connections to every address; calls take turns. More than 1 pays above about 1 GB/s.
  // Range [1, 64].
  int channels = 1;
  // Memory that a client shares by itself with a server of the same host that takes leases: large
  // tensors in ordinary memory are copied there instead of sent. 0: none. >= 0.
  int64_t staging_bytes = int64_t{256} << 20;
  // "inproc:" only. Threads that compute, the caller's included: 1 starts none. Range [1, 1024].
  int inproc_threads = 1;
  // "inproc:" only. "auto", "cpu", "cuda" or "reference". "cuda" opens a device, which
  // takes time and its memory.
  std::string inproc_backend = "cpu";
  // Of servers over TCP; not set: plaintext.
  std::optional<TlsOptions> tls = {};
  // Sent with every call; or the file that has it, in which it may be replaced. Empty: none.
  std::string token = {};
  std::string token_file = {};
  // Whether a token may go to another host without TLS.
  bool token_over_plaintext = false;

  // INVALID_ARGUMENT "<option>: <what is wrong>, <what is accepted>".
  absl::Status Validate() const;
};

// Cancels the calls that it was given to. A cancelled call answers CANCELLED unless it was done
// already; it is done, and its memory free, only when it answers.
// Threads: any, at once. Copies are the same token.
class CancelToken {
 public:
  CancelToken();
  void Cancel();
  bool cancelled() const;

  // For connections: `hook` runs once, at Cancel or now if that has been, unless the registration
  // is dropped before. It may still be running when the drop returns: capture what keeps it safe.
  using Registration = std::shared_ptr<void>;
  [[nodiscard]] Registration OnCancel(std::function<void()> hook) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

struct CallOptions {
  // Replaces ClientOptions::timeout. The earlier of timeout and deadline holds.
  std::optional<absl::Duration> timeout = {};
  std::optional<absl::Time> deadline = {};
  // What the caller insists on, for items that have no pins of their own.
  Pins pins = {};
  std::optional<CancelToken> cancel = {};
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_OPTIONS_H_
