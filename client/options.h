// SPDX-License-Identifier: Apache-2.0
// Options of a client and of one call.
#ifndef PHASOR_CLIENT_OPTIONS_H_
#define PHASOR_CLIENT_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/request/request.h"

namespace phasor {

// TLS to a server. All files are PEM. They are read again from time to time, for new connections.
struct TlsOptions {
  std::string ca_file = {};  // CA certificates that servers must be signed by; empty: the system's
  std::string cert_file = {};  // the client's certificate, if the server asks for one
  std::string key_file = {};   // key of cert_file; set both or neither
  // The name that the server's certificate must have. Empty: the host of the target.
  std::string server_name = {};
};

// Options of a client. The defaults are valid.
struct ClientOptions {
  // Time limit of a call, retries included; > 0. CallOptions may replace it.
  absl::Duration timeout = absl::Seconds(10);
  // Attempts of a call, including the first, in [1, 10]. Only UNAVAILABLE is retried.
  int max_attempts = 3;  // a retry waits up to 2 s for a connection; 1: none, fails at once
  // The waits between attempts grow from initial_backoff to max_backoff, with jitter. If the server
  // sends grpc-retry-pushback-ms, that replaces the wait.
  absl::Duration initial_backoff = absl::Milliseconds(25);
  absl::Duration max_backoff = absl::Seconds(1);
  // Connections to each address, in [1, 64]; calls take turns. More than one helps above about 1
  // GB/s.
  int channels = 1;
  // Most shared memory that this client uses for staging: large tensors in ordinary memory are
  // copied to it instead of being sent, if the server is on this host and accepts leases. 0 turns
  // staging off. >= 0.
  int64_t staging_bytes = int64_t{256} << 20;
  // "inproc:" only: threads that compute, including the caller's, in [1, 1024]. 1 starts no thread.
  int inproc_threads = 1;
  // "inproc:" only: "auto", "cpu", "cuda" or "reference". "cuda" opens a GPU, which takes time and
  // GPU memory.
  std::string inproc_backend = "cpu";
  // TLS for servers over TCP. Not set: plaintext.
  std::optional<TlsOptions> tls = {};
  // A token that is sent with every call, or the file that holds it. The file may be replaced while
  // the client runs. At most one of both may be set. Empty: no token.
  std::string token = {};
  std::string token_file = {};
  // Whether the token may be sent to another host without TLS.
  bool token_over_plaintext = false;

  // INVALID_ARGUMENT "<option>: <what is wrong>; <what to do>".
  absl::Status Validate() const;
};

// Cancels the calls that it was given to. A cancelled call answers CANCELLED, unless it is already
// done. Its memory is free only when it has answered.
//
// Threads: any thread may call any function at any time. Copies are the same token.
class CancelToken {
 public:
  CancelToken();
  void Cancel();
  bool cancelled() const;

  // For connections. Runs `hook` once: when Cancel is called, or at once if that has happened.
  // Dropping the registration first prevents it. A hook may still be running when the drop returns,
  // so it must own what it uses.
  using Registration = std::shared_ptr<void>;
  [[nodiscard]] Registration OnCancel(std::function<void()> hook) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Keys and values that are sent with a call as gRPC metadata (HTTP/2 headers).
using Metadata = std::vector<std::pair<std::string, std::string>>;

// Options of one call or stream.
struct CallOptions {
  // Replaces ClientOptions::timeout. If both timeout and deadline are set, the earlier one counts.
  std::optional<absl::Duration> timeout = {};
  std::optional<absl::Time> deadline = {};
  // Requirements for the items of the call that have no pins of their own.
  Pins pins = {};
  std::optional<CancelToken> cancel = {};
  // Sent with every attempt of the call, for example a trace context:
  // {{"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}. A key has the
  // characters a-z 0-9 - _ . and does not begin with "grpc-". A value has printable ASCII
  // characters, or any bytes if the key ends with "-bin". Not used by "inproc:".
  Metadata metadata = {};
};

// INVALID_ARGUMENT "metadata[i]: ...": a key or value that gRPC cannot send, or a key that belongs
// to gRPC or to this library.
absl::Status CheckMetadata(const Metadata& metadata);

}  // namespace phasor

#endif  // PHASOR_CLIENT_OPTIONS_H_
