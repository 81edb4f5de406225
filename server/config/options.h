// SPDX-License-Identifier: Apache-2.0
// All options of a server. An option is set by flag (--max-message-bytes), by environment variable
// (PHASOR_MAX_MESSAGE_BYTES) or in the configuration file (max_message_bytes: "64MiB"), in this
// order of precedence. Encoders are set in the file only. See docs/configuration.md.
#ifndef PHASOR_SERVER_CONFIG_OPTIONS_H_
#define PHASOR_SERVER_CONFIG_OPTIONS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/spec/encoder_set.h"

namespace phasor {

// The values of all options. The defaults are valid.
struct ServerOptions {
  // Addresses to listen on: "host:port" (port 0 chooses one), "[v6]:port" or "unix:/path".
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  // Unencrypted addresses for health and channelz; empty: none.
  std::vector<std::string> admin_listen;
  // "host:port" of the HTTP metrics page for Prometheus at /metrics; empty: none.
  std::vector<std::string> metrics_listen;

  // Permissions of the Unix sockets of all three and of lease_socket, and the group that owns them;
  // empty: the group of the process.
  int socket_mode = 0660;
  std::string socket_group;

  // Who may connect and call (docs/security.md).
  bool allow_plaintext = false;  // on addresses that other hosts can reach
  std::string tls_cert;          // PEM files; empty: no TLS
  std::string tls_key;
  std::string tls_client_ca;  // not empty: clients need a certificate signed by it
  std::string tokens_file;    // not empty: calls need a token from it
  std::string policy_file;    // empty: all who can connect may call everything
  absl::Duration credentials_reload_interval = absl::Seconds(10);

  // Compute.
  std::string backend = "auto";          // auto | cpu | cuda | reference
  std::vector<int> devices;              // numbers of the CUDA runtime; empty: all
  std::string device_fault = "restart";  // restart | retry
  int threads = 0;                       // compute threads; 0: one per core that it may use
  int64_t inline_bytes = 1 << 20;        // calls up to this size run on the receiving thread
  int64_t plan_cache_bytes = int64_t{64} << 20;
  int64_t pool_bytes = int64_t{256} << 20;

  // Learned tables.
  std::string tables_dir;  // empty: none
  int64_t max_table_bytes = int64_t{256} << 20;
  int64_t max_tables_bytes = int64_t{1} << 30;
  absl::Duration tables_rescan_interval = absl::Seconds(5);  // 0: only when a table is missing

  // Host memory that clients lease for calls (docs/shared-memory.md).
  std::string lease_socket;                    // path of a Unix socket; empty: none
  int64_t max_lease_bytes = int64_t{8} << 30;  // per user
  int max_leases = 256;                        // per user

  // Shared memory that clients register by name (docs/shared-memory.md).
  bool shared_memory = false;
  int64_t max_region_bytes = int64_t{8} << 30;  // per owner
  int max_regions = 256;                        // per owner
  absl::Duration shared_memory_lease = absl::Hours(1);

  // Limits.
  int64_t max_message_bytes = int64_t{2047} << 20;  // largest request or response message
  int64_t max_header_bytes = 1 << 20;               // request metadata: everything except raw
  int64_t max_inflight_bytes = int64_t{8} << 30;
  int64_t max_metadata_bytes = 8 << 10;  // HTTP/2 headers
  int max_concurrent_streams = 128;      // per connection
  int max_connections = 1024;
  int max_connections_per_peer = 256;  // per IP address; Unix sockets: per user
  int max_batch_items = 4096;
  int64_t max_frame_bytes = 4 << 20;                      // HTTP/2 frame
  int64_t stream_window_bytes = 0;                        // 0: gRPC measures the link
  absl::Duration max_connection_idle = absl::Minutes(5);  // 0: never closed
  absl::Duration max_connection_age = absl::Minutes(30);  // 0: never closed
  absl::Duration max_connection_age_grace = absl::Minutes(5);
  absl::Duration stream_idle_timeout = absl::Seconds(60);  // 0: never ended
  absl::Duration answer_timeout = absl::Seconds(60);       // plus 1 s per MiB; 0: never ended
  absl::Duration handshake_timeout = absl::Seconds(10);
  absl::Duration keepalive_time = absl::Seconds(60);  // 0: no pings
  absl::Duration keepalive_timeout = absl::Seconds(20);

  // Shutdown.
  absl::Duration drain_delay = absl::Seconds(0);     // NOT_SERVING, but still accepting
  absl::Duration drain_timeout = absl::Seconds(30);  // for calls in flight

  std::string log_level = "info";  // debug | info | warn | error | off
  int64_t log_every = 0;           // one of this many successful calls is logged; 0: none
  bool reflection = true;

  // Variables of the environment that begin with OTEL_ (docs/tracing.md). They are no options of
  // ours, so they are neither flags nor fields of the configuration file.
  std::map<std::string, std::string> otel_variables;

  // What systemd passes to a service (server/net/systemd.h).
  std::vector<int> passed_sockets;
  std::string notify_socket;

  // Specs that requests may use by name.
  std::vector<NamedSpec> encoders;

  // INVALID_ARGUMENT "<option>: <what is wrong>; <what to do>", or the errors of ResolveSpec
  // for encoders.
  absl::Status Validate() const;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_OPTIONS_H_
