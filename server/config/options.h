// SPDX-License-Identifier: Apache-2.0
// Everything that can be set about a server: by flag (--max-message-bytes), by environment
// (PHASOR_MAX_MESSAGE_BYTES) and by configuration file (max_message_bytes: "64MiB"), in that order
// of precedence; encoders by file only. docs/configuration.md.
#ifndef PHASOR_SERVER_CONFIG_OPTIONS_H_
#define PHASOR_SERVER_CONFIG_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/spec/encoder_set.h"

namespace phasor {

struct ServerOptions {
  // Addresses to listen on: "host:port" (port 0 chooses one), "[v6]:port" or "unix:/path".
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  // The same, for health and channelz without encryption; empty: none.
  std::vector<std::string> admin_listen;
  // "host:port" of HTTP for Prometheus, path /metrics; empty: none.
  std::vector<std::string> metrics_listen;

  // Who may connect and call (docs/security.md).
  bool allow_plaintext = false;  // on addresses that other hosts reach
  std::string tls_cert;          // PEM files; empty: no TLS
  std::string tls_key;
  std::string tls_client_ca;  // not empty: clients must have a certificate of it
  std::string tokens_file;    // not empty: calls must have a token of it
  std::string policy_file;    // empty: whoever may connect may call everything
  absl::Duration credentials_reload_interval = absl::Seconds(10);

  // Compute.
  std::string backend = "auto";        // auto | cpu | cuda | reference
  std::string device_fault = "retry";  // retry | restart
  int threads = 0;                     // compute threads; 0: one per core
  int64_t inline_bytes = 1 << 20;      // calls up to this run on the thread that received them
  int64_t plan_cache_entries = 256;
  int64_t pool_bytes = int64_t{256} << 20;

  // Learned tables.
  std::string tables_dir;  // empty: none
  int64_t max_table_bytes = int64_t{256} << 20;
  int64_t max_tables_bytes = int64_t{1} << 30;

  // Memory of this host that clients lease to calls (docs/shared-memory.md).
  std::string lease_socket;                    // path of a Unix socket; empty: none
  int64_t max_lease_bytes = int64_t{8} << 30;  // of one user
  int max_leases = 256;                        // of one user

  // Shared memory that clients name (docs/shared-memory.md).
  bool shared_memory = false;
  int64_t max_region_bytes = int64_t{8} << 30;  // of one owner
  int max_regions = 256;                        // of one owner
  absl::Duration shared_memory_lease = absl::Hours(1);

  // Limits.
  int64_t max_message_bytes = int64_t{2047} << 20;  // largest request or response message
  int64_t max_header_bytes = 1 << 20;               // request metadata, everything but raw
  int64_t max_inflight_bytes = int64_t{8} << 30;
  int64_t max_metadata_bytes = 8 << 10;  // HTTP/2 headers
  int max_concurrent_streams = 128;      // per connection
  int max_connections = 1024;
  int max_connections_per_peer = 256;  // per IP address; Unix sockets: per uid
  int max_batch_items = 4096;
  int64_t max_frame_bytes = 4 << 20;                      // HTTP/2 frame
  int64_t stream_window_bytes = 0;                        // 0: gRPC measures the link
  absl::Duration max_connection_idle = absl::Minutes(5);  // 0: never closed
  absl::Duration max_connection_age = absl::Minutes(30);  // 0: never closed
  absl::Duration max_connection_age_grace = absl::Minutes(5);
  absl::Duration stream_idle_timeout = absl::Seconds(60);  // 0: never ended
  absl::Duration answer_timeout = absl::Seconds(60);       // and 1 s for each MiB; 0: never ended
  absl::Duration handshake_timeout = absl::Seconds(10);
  absl::Duration keepalive_time = absl::Seconds(60);  // 0: no pings
  absl::Duration keepalive_timeout = absl::Seconds(20);

  // Shutdown.
  absl::Duration drain_delay = absl::Seconds(0);     // NOT_SERVING but accepting
  absl::Duration drain_timeout = absl::Seconds(30);  // for calls in flight

  std::string log_level = "info";  // debug | info | warn | error | off
  int64_t log_every = 0;           // one of so many calls that succeed gets a line; 0: none
  bool reflection = true;

  // Specs that requests may call by name.
  std::vector<NamedSpec> encoders;

  // INVALID_ARGUMENT "<option>: <what is wrong>, <what is accepted>".
  // Of encoders also what ResolveSpec returns.
  absl::Status Validate() const;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_OPTIONS_H_
