// SPDX-License-Identifier: Apache-2.0
// The rows of the table of options. Flags, environment variables, the configuration file, help and
// validation are all derived from them.
#include "server/config/options.h"

#include "absl/strings/match.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "server/config/option_table.h"
#include "server/net/listen_address.h"

namespace phasor {

namespace {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kTiB = int64_t{1} << 40;
constexpr absl::Duration kDay = absl::Hours(24);

}  // namespace

const std::vector<Option>& Options() {
  using namespace option_kinds;  // NOLINT: all kinds
  using O = ServerOptions;
  static const auto* const options = new std::vector<Option>{
      {"listen",
       "addresses to listen on: host:port (port 0 picks a free port), [v6]:port, unix:/path",
       Addresses{&O::listen}},
      {"socket-mode", "permissions of the server's Unix sockets, --lease-socket too",
       Mode{&O::socket_mode}},
      {"socket-group",
       "group that owns the server's Unix sockets; the server's user must belong to it",
       Text{&O::socket_group, "the name or number of a group; empty: none"}},
      {"allow-plaintext",
       "listen without TLS on addresses that other hosts can reach; no effect with "
       "--tls-cert",
       Switch{&O::allow_plaintext}},
      {"tls-cert",
       "the server's certificate, then those between it and the root, PEM; turns on TLS for "
       "all TCP addresses",
       Text{&O::tls_cert}},
      {"tls-key", "private key of --tls-cert, PEM", Text{&O::tls_key}},
      {"tls-client-ca",
       "authority that signs the certificates of clients, PEM; if set, every client must "
       "have one",
       Text{&O::tls_client_ca}},
      {"tokens-file",
       "token hashes, lines of `name sha256:HEX`; if set, every call must have a token, and "
       "reflection is off",
       Text{&O::tokens_file}},
      {"policy-file", "who may call what, JSON (docs/security.md); if set, reflection is off",
       Text{&O::policy_file}},
      {"credentials-reload-interval",
       "how often the server checks the certificate, token and policy files for changes",
       Time{&O::credentials_reload_interval, absl::Milliseconds(100), kDay}},
      {"admin-listen",
       "addresses, written as for --listen, for health and channelz without encryption; "
       "empty: none",
       Addresses{&O::admin_listen, true}},
      {"metrics-listen", "host:port for HTTP: Prometheus reads /metrics there; empty: none",
       Addresses{&O::metrics_listen, true}},
      {"backend",
       "what computes; auto: the device for tensors in its memory, the CPU for all others",
       Choice{&O::backend, {"auto", "cpu", "cuda", "reference"}}},
      {"devices",
       "numbers of the devices that compute, as CUDA counts them; all: every one that can be "
       "used",
       Devices{&O::devices}},
      {"device-fault",
       "what to do when a device is lost; restart: drain and exit with status 75; "
       "retry: try it again in a fresh context",
       Choice{&O::device_fault, {"restart", "retry"}}},
      {"threads",
       "threads that compute; 0: one per core that the server may use; with fewer, it also "
       "receives calls and keeps memory as on so many cores",
       Count{&O::threads, 0, 1024}},
      {"inline-bytes",
       "calls that read and write up to this many bytes run on the thread that received "
       "them; bytes of shared memory count a quarter",
       Bytes{&O::inline_bytes, 0, kGiB}},
      {"plan-cache-bytes", "memory of compiled specs that are kept for the calls to come",
       Bytes{&O::plan_cache_bytes, 0, kTiB}},
      {"pool-bytes", "memory of finished large responses that is kept for reuse",
       Bytes{&O::pool_bytes, 0, kTiB}},
      {"tables-dir",
       "directory of learned tables (.safetensors, .npy); uploads are written to it, and "
       "servers with one directory share them",
       Text{&O::tables_dir}},
      {"tables-rescan-interval",
       "how often the server looks for tables that others wrote to --tables-dir; 0: only when a "
       "call names a table that it does not know",
       Time{&O::tables_rescan_interval, absl::Milliseconds(100), kDay, true}},
      {"max-table-bytes", "largest table that can be uploaded",
       Bytes{&O::max_table_bytes, kKiB, kTiB}},
      {"max-tables-bytes", "memory of all learned tables",
       Bytes{&O::max_tables_bytes, kKiB, 16 * kTiB}},
      {"lease-socket", "Unix socket over which clients of this host share memory with the server",
       Text{&O::lease_socket}},
      {"max-lease-bytes", "memory that one user may share over --lease-socket",
       Bytes{&O::max_lease_bytes, kKiB, 1024 * kTiB}},
      {"max-leases", "pieces of memory that one user may share over --lease-socket",
       Count{&O::max_leases, 1, 10000}},
      {"shared-memory",
       "open shared memory that clients name; only where all clients of this host are "
       "trusted",
       Switch{&O::shared_memory}},
      {"max-region-bytes", "shared memory that one owner may name",
       Bytes{&O::max_region_bytes, kKiB, 1024 * kTiB}},
      {"max-regions", "regions of shared memory that one owner may name",
       Count{&O::max_regions, 1, 1024}},
      {"shared-memory-lease", "the server forgets a region that no call has used for this time",
       Time{&O::shared_memory_lease, absl::Seconds(1), 30 * kDay}},
      {"max-message-bytes", "largest request or response",
       Bytes{&O::max_message_bytes, kKiB, 2047 * kMiB}},
      {"max-header-bytes", "largest request, not counting its tensor bytes",
       Bytes{&O::max_header_bytes, kKiB, 64 * kMiB}},
      {"max-inflight-bytes",
       "requests and responses in memory at one time; a call that does not fit is "
       "UNAVAILABLE",
       Bytes{&O::max_inflight_bytes, kMiB, 1024 * kTiB}, Reload::kTakesEffect},
      {"max-metadata-bytes", "largest metadata (HTTP/2 headers) of a call",
       Bytes{&O::max_metadata_bytes, kKiB, kMiB}},
      {"max-concurrent-streams", "calls at one time on one connection",
       Count{&O::max_concurrent_streams, 1, 1000000}},
      {"max-connections", "connections at one time", Count{&O::max_connections, 1, 1000000},
       Reload::kTakesEffect},
      {"max-connections-per-peer",
       "connections at one time from one IP address, or from one user over Unix sockets",
       Count{&O::max_connections_per_peer, 1, 1000000}, Reload::kTakesEffect},
      {"max-batch-items", "items in one batch call", Count{&O::max_batch_items, 1, 1000000},
       Reload::kTakesEffect},
      {"max-frame-bytes", "largest HTTP/2 frame",
       Bytes{&O::max_frame_bytes, 16 * kKiB, 16 * kMiB - 1}},
      {"stream-window-bytes",
       "bytes that a call may send before the server reads them; 0: gRPC measures the link "
       "and decides",
       Bytes{&O::stream_window_bytes, 64 * kKiB, 16 * kMiB, true}},
      {"max-connection-idle", "a connection without calls is closed after this time; 0: never",
       Time{&O::max_connection_idle, absl::Seconds(1), 30 * kDay, true}},
      {"max-connection-age",
       "a connection is closed after this time, and its client connects again; 0: never",
       Time{&O::max_connection_age, absl::Seconds(1), 30 * kDay, true}},
      {"max-connection-age-grace",
       "time that the calls of a connection have to finish after --max-connection-age",
       Time{&O::max_connection_age_grace, absl::Seconds(1), kDay}},
      {"stream-idle-timeout",
       "a stream or upload that sends nothing and waits for no answer ends after this time; an "
       "upload also if it takes longer than this, plus 1 s for each MiB; 0: never",
       Time{&O::stream_idle_timeout, absl::Milliseconds(100), kDay, true}},
      {"answer-timeout",
       "a call ends if its caller takes longer than this, plus 1 s for each MiB, to receive "
       "an answer; 0: never",
       Time{&O::answer_timeout, absl::Milliseconds(100), kDay, true}},
      {"handshake-timeout",
       "time that a new connection has to finish its handshake and begin HTTP/2",
       Time{&O::handshake_timeout, absl::Milliseconds(100), absl::Minutes(10)}},
      {"keepalive-time", "a connection without traffic is pinged after this time; 0: never",
       Time{&O::keepalive_time, absl::Seconds(1), kDay, true}},
      {"keepalive-timeout",
       "a connection is closed if its peer does not answer a ping within this time",
       Time{&O::keepalive_timeout, absl::Milliseconds(100), absl::Minutes(10)}},
      {"drain-delay",
       "on SIGTERM: how long the server still takes calls after health turns NOT_SERVING",
       Time{&O::drain_delay, absl::ZeroDuration(), absl::Hours(1)}, Reload::kTakesEffect},
      {"drain-timeout",
       "on SIGTERM: time that the calls in flight have to finish after --drain-delay",
       Time{&O::drain_timeout, absl::ZeroDuration(), kDay}, Reload::kTakesEffect},
      {"log-level", "least severe level of log lines that are written",
       Choice{&O::log_level, {"debug", "info", "warn", "error", "off"}}, Reload::kTakesEffect},
      {"log-every",
       "one of so many successful calls gets a log line, and each failed call gets one; 0: "
       "failed calls only",
       Count{&O::log_every, 0, 1000000000}},
      {"reflection", "answer grpc.reflection; off in any case with --tokens-file or --policy-file",
       Switch{&O::reflection}},
  };
  return *options;
}

namespace {

absl::Status CheckDevices(const ServerOptions& o) {
  if (o.devices.empty() || o.backend == "auto" || o.backend == "cuda") return absl::OkStatus();
  return Invalid("devices: set with backend '", o.backend,
                 "', which uses none, accepted with auto, cuda");
}

absl::Status CheckMetricsListen(const ServerOptions& o) {
  for (const std::string& address : o.metrics_listen) {
    if (!absl::StartsWith(address, "unix:")) continue;
    return Invalid("metrics-listen: '", address,
                   "' is a path; accepted are host:port and [v6]:port");
  }
  return absl::OkStatus();
}

// Checks options of security that depend on each other.
absl::Status CheckSecurity(const ServerOptions& o) {
  if (!o.tls_key.empty() && o.tls_cert.empty())
    return Invalid("tls-key: set without tls-cert; set both");
  if (o.tls_key.empty() && !o.tls_cert.empty())
    return Invalid("tls-cert: set without tls-key; set both");
  if (!o.tls_client_ca.empty() && o.tls_cert.empty()) {
    return Invalid(
        "tls-client-ca: set without tls-cert; set tls-cert and tls-key, which turn on TLS");
  }
  if (!o.policy_file.empty() && o.tokens_file.empty() && o.tls_client_ca.empty()) {
    return Invalid("policy-file: nobody has an identity; set tokens-file or tls-client-ca too");
  }
  if (!o.tls_cert.empty() || o.allow_plaintext) return absl::OkStatus();
  for (const std::string& text : o.listen) {
    PHASOR_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
    if (IsOfThisHost(address)) continue;
    return Invalid("listen: '", text,
                   "' would take plaintext from other hosts; set tls-cert and tls-key for "
                   "TLS, or allow-plaintext if the network is trusted");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ServerOptions::Validate() const {
  for (const Option& option : Options()) {
    PHASOR_RETURN_IF_ERROR(CheckOption(*this, option));
  }
  PHASOR_RETURN_IF_ERROR(CheckDevices(*this));
  PHASOR_RETURN_IF_ERROR(CheckMetricsListen(*this));
  PHASOR_RETURN_IF_ERROR(CheckSecurity(*this));
  if (!lease_socket.empty()) {
    if (lease_socket[0] != '/') {
      return Invalid("lease-socket: '", lease_socket,
                     "' is not accepted; must be an absolute path");
    }
    PHASOR_RETURN_IF_ERROR(ParseListenAddress("unix:" + lease_socket, "lease-socket").status());
  }
  return EncoderSet::Make(encoders).status();
}

}  // namespace phasor
