// SPDX-License-Identifier: Apache-2.0
// One table describes every option; flags, environment, config file, help and validation follow it.
#include "server/options.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "kernels/status_macros.h"
#include "server/listen_address.h"
#include "server/option_values.h"

namespace phasor {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kTiB = int64_t{1} << 40;
constexpr absl::Duration kDay = absl::Hours(24);

// What kind of value an option has, where it lives and what is accepted.
struct Bytes {
  int64_t ServerOptions::*field;
  int64_t min, max;
  bool zero_is_off = false;  // 0 is accepted, whatever `min` is
};
struct Count {
  std::variant<int ServerOptions::*, int64_t ServerOptions::*> field;
  int64_t min, max;
};
struct Time {
  absl::Duration ServerOptions::*field;
  absl::Duration min, max;
  bool zero_is_off = false;  // 0 is accepted, whatever `min` is
};
struct Choice {
  std::string ServerOptions::*field;
  std::vector<std::string> accepted;
};
struct Path {
  std::string ServerOptions::*field;
};
struct Switch {
  bool ServerOptions::*field;
};
struct Addresses {
  std::vector<std::string> ServerOptions::*field;
};

struct Option {
  std::string name;
  std::string help;
  std::variant<Bytes, Count, Time, Choice, Path, Switch, Addresses> value;
};

const std::vector<Option>& Options() {
  using O = ServerOptions;
  static const auto* const options = new std::vector<Option>{
      {"listen", "addresses to listen on: host:port (port 0: any free one), [v6]:port, unix:/path",
       Addresses{&O::listen}},
      {"allow-plaintext",
       "listen without TLS on addresses that other hosts reach; has no effect with --tls-cert",
       Switch{&O::allow_plaintext}},
      {"tls-cert", "certificate of the server and those up to its root, PEM: TLS on all of TCP",
       Path{&O::tls_cert}},
      {"tls-key", "private key of that certificate, PEM", Path{&O::tls_key}},
      {"tls-client-ca", "who signs certificates of clients, PEM; set: every client must have one",
       Path{&O::tls_client_ca}},
      {"tokens-file", "lines `name sha256:HEX`; set: every call must have a token, no reflection",
       Path{&O::tokens_file}},
      {"policy-file", "who may call what, JSON (docs/security.md); set: no reflection",
       Path{&O::policy_file}},
      {"credentials-reload-interval", "how often these files are looked at for changes",
       Time{&O::credentials_reload_interval, absl::Milliseconds(100), kDay}},
      {"backend", "what computes; auto is cpu: no device has been measured yet",
       Choice{&O::backend, {"auto", "cpu", "cuda", "reference"}}},
      {"threads", "threads that compute; 0: one per core", Count{&O::threads, 0, 1024}},
      {"inline-bytes", "calls of up to this many bytes run on the thread that received them",
       Bytes{&O::inline_bytes, 0, kGiB}},
      {"plan-cache-entries", "compiled specs kept", Count{&O::plan_cache_entries, 1, 1000000}},
      {"pool-bytes", "memory of finished large responses kept for reuse",
       Bytes{&O::pool_bytes, 0, kTiB}},
      {"tables-dir", "directory of learned tables (.safetensors, .npy); uploads are written to it",
       Path{&O::tables_dir}},
      {"max-table-bytes", "largest table that can be uploaded",
       Bytes{&O::max_table_bytes, kKiB, kTiB}},
      {"max-tables-bytes", "memory of all learned tables",
       Bytes{&O::max_tables_bytes, kKiB, 16 * kTiB}},
      {"lease-socket", "Unix socket over which clients of this host share memory with their calls",
       Path{&O::lease_socket}},
      {"max-lease-bytes", "memory that one user may share over --lease-socket",
       Bytes{&O::max_lease_bytes, kKiB, 1024 * kTiB}},
      {"max-leases", "pieces of memory that one user may share over --lease-socket",
       Count{&O::max_leases, 1, 10000}},
      {"shared-memory", "open shared memory that clients name; on a host of trusted clients only",
       Switch{&O::shared_memory}},
      {"shared-memory-lease", "a region that no call used for this time is forgotten",
       Time{&O::shared_memory_lease, absl::Seconds(1), 30 * kDay}},
      {"max-message-bytes", "largest request or response",
       Bytes{&O::max_message_bytes, kKiB, 2047 * kMiB}},
      {"max-header-bytes", "largest request without its tensor bytes",
       Bytes{&O::max_header_bytes, kKiB, 64 * kMiB}},
      {"max-inflight-bytes", "requests and responses in memory; calls beyond it are UNAVAILABLE",
       Bytes{&O::max_inflight_bytes, kMiB, 1024 * kTiB}},
      {"max-metadata-bytes", "largest HTTP/2 headers of a call",
       Bytes{&O::max_metadata_bytes, kKiB, kMiB}},
      {"max-concurrent-streams", "calls at a time on one connection",
       Count{&O::max_concurrent_streams, 1, 1000000}},
      {"max-connections", "connections at a time", Count{&O::max_connections, 1, 1000000}},
      {"max-connections-per-peer",
       "connections at a time from one IP address, or from one user over Unix sockets",
       Count{&O::max_connections_per_peer, 1, 1000000}},
      {"max-batch-items", "items of one batch call", Count{&O::max_batch_items, 1, 1000000}},
      {"max-frame-bytes", "largest HTTP/2 frame",
       Bytes{&O::max_frame_bytes, 16 * kKiB, 16 * kMiB - 1}},
      {"stream-window-bytes",
       "what a call may send ahead of being read; 0: gRPC measures the link and decides",
       Bytes{&O::stream_window_bytes, 64 * kKiB, 16 * kMiB, true}},
      {"max-connection-idle", "a connection without calls is closed after this time; 0: never",
       Time{&O::max_connection_idle, absl::Seconds(1), 30 * kDay, true}},
      {"max-connection-age", "a connection is replaced after this time; 0: never",
       Time{&O::max_connection_age, absl::Seconds(1), 30 * kDay, true}},
      {"max-connection-age-grace", "time for the calls of a connection that is replaced",
       Time{&O::max_connection_age_grace, absl::Seconds(1), kDay}},
      {"stream-idle-timeout",
       "a stream or upload that sends nothing and is owed nothing, or takes no answer, ends after "
       "this time; 0: never",
       Time{&O::stream_idle_timeout, absl::Milliseconds(100), kDay, true}},
      {"handshake-timeout", "time for a new connection to say that it speaks HTTP/2",
       Time{&O::handshake_timeout, absl::Milliseconds(100), absl::Minutes(10)}},
      {"keepalive-time", "a quiet connection is pinged after this time; 0: never",
       Time{&O::keepalive_time, absl::Seconds(1), kDay, true}},
      {"keepalive-timeout", "a connection is closed when a ping is not answered in this time",
       Time{&O::keepalive_timeout, absl::Milliseconds(100), absl::Minutes(10)}},
      {"drain-delay", "on SIGTERM: time between NOT_SERVING and refusing connections",
       Time{&O::drain_delay, absl::ZeroDuration(), absl::Hours(1)}},
      {"drain-timeout", "on SIGTERM: time for calls in flight after that",
       Time{&O::drain_timeout, absl::ZeroDuration(), kDay}},
      {"log-level", "least severe log lines written",
       Choice{&O::log_level, {"debug", "info", "warn", "error", "off"}}},
      {"reflection", "answer grpc.reflection", Switch{&O::reflection}},
  };
  return *options;
}

// "1 to 8"; also for messages.
std::string Accepted(const Bytes& v) {
  return absl::StrCat(v.zero_is_off ? "0, or " : "", FormatBytes(v.min), " to ", FormatBytes(v.max),
                      " (bytes, KiB, MiB, GiB, TiB)");
}
std::string Accepted(const Count& v) { return absl::StrCat(v.min, " to ", v.max); }
std::string Accepted(const Time& v) {
  return absl::StrCat(v.zero_is_off ? "0, or " : "", FormatTime(v.min), " to ", FormatTime(v.max),
                      " (ms, s, m, h)");
}
std::string Accepted(const Choice& v) { return absl::StrJoin(v.accepted, ", "); }
std::string Accepted(const Path&) { return "a path; empty: none"; }
std::string Accepted(const Switch&) { return "true, false"; }
std::string Accepted(const Addresses&) { return "one or more, separated by commas"; }
std::string Accepted(const Option& option) {
  return std::visit([](const auto& v) { return Accepted(v); }, option.value);
}

std::string Format(const ServerOptions& o, const Bytes& v) { return FormatBytes(o.*v.field); }
std::string Format(const ServerOptions& o, const Count& v) {
  return std::visit([&o](auto field) { return absl::StrCat(o.*field); }, v.field);
}
std::string Format(const ServerOptions& o, const Time& v) { return FormatTime(o.*v.field); }
std::string Format(const ServerOptions& o, const Choice& v) { return o.*v.field; }
std::string Format(const ServerOptions& o, const Path& v) {
  return (o.*v.field).empty() ? "none" : o.*v.field;
}
std::string Format(const ServerOptions& o, const Switch& v) {
  return o.*v.field ? "true" : "false";
}
std::string Format(const ServerOptions& o, const Addresses& v) {
  return absl::StrJoin(o.*v.field, ",");
}
std::string Format(const ServerOptions& o, const Option& option) {
  return std::visit([&o](const auto& v) { return Format(o, v); }, option.value);
}

// Sets a value from text; false when it is not written as such a value is.
bool Set(ServerOptions* o, const Bytes& v, const std::string& text) {
  const std::optional<int64_t> bytes = ParseBytes(text);
  if (bytes.has_value()) o->*v.field = *bytes;
  return bytes.has_value();
}
bool Set(ServerOptions* o, const Count& v, const std::string& text) {
  return std::visit([&](auto field) { return absl::SimpleAtoi(text, &(o->*field)); }, v.field);
}
bool Set(ServerOptions* o, const Time& v, const std::string& text) {
  const std::optional<absl::Duration> time = ParseTime(text);
  if (time.has_value()) o->*v.field = *time;
  return time.has_value();
}
bool Set(ServerOptions* o, const Choice& v, const std::string& text) {
  o->*v.field = text;
  return true;
}
bool Set(ServerOptions* o, const Path& v, const std::string& text) {
  o->*v.field = text;
  return true;
}
bool Set(ServerOptions* o, const Switch& v, const std::string& text) {
  const std::optional<bool> on = ParseSwitch(text);
  if (on.has_value()) o->*v.field = *on;
  return on.has_value();
}
bool Set(ServerOptions* o, const Addresses& v, const std::string& text) {
  std::vector<std::string> addresses = absl::StrSplit(text, ',', absl::SkipWhitespace());
  for (std::string& address : addresses) absl::StripAsciiWhitespace(&address);
  o->*v.field = std::move(addresses);
  return true;
}

bool InRange(const ServerOptions& o, const Bytes& v) {
  const int64_t bytes = o.*v.field;
  return (v.zero_is_off && bytes == 0) || (bytes >= v.min && bytes <= v.max);
}
bool InRange(const ServerOptions& o, const Count& v) {
  return std::visit([&](auto field) { return o.*field >= v.min && o.*field <= v.max; }, v.field);
}
bool InRange(const ServerOptions& o, const Time& v) {
  const absl::Duration time = o.*v.field;
  return (v.zero_is_off && time == absl::ZeroDuration()) || (time >= v.min && time <= v.max);
}
bool InRange(const ServerOptions& o, const Choice& v) {
  return std::find(v.accepted.begin(), v.accepted.end(), o.*v.field) != v.accepted.end();
}
bool InRange(const ServerOptions&, const Path&) { return true; }
bool InRange(const ServerOptions&, const Switch&) { return true; }
bool InRange(const ServerOptions& o, const Addresses& v) { return !(o.*v.field).empty(); }

absl::Status NotAccepted(const Option& option, const std::string& text) {
  return absl::InvalidArgumentError(
      absl::StrCat(option.name, ": '", text, "' is not accepted, accepted: ", Accepted(option)));
}

// Edits that turn a into b.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = std::exchange(row[j + 1], std::min({replaced, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

// The option called `name`; '_' is as good as '-'.
absl::StatusOr<const Option*> FindOption(const std::string& name) {
  const std::string canonical = absl::StrReplaceAll(name, {{"_", "-"}});
  const Option* nearest = nullptr;
  size_t nearest_distance = 0;
  for (const Option& option : Options()) {
    const size_t distance = EditDistance(canonical, option.name);
    if (distance == 0) return &option;
    if (nearest == nullptr || distance < nearest_distance) {
      nearest = &option;
      nearest_distance = distance;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": unknown option, did you mean ", nearest->name, "?"));
}

// Texts of options by name, from one source.
using Texts = std::map<std::string, std::string>;

struct Flags {
  Texts texts;
  std::string config;
  bool help = false;
  bool version = false;
};

// A flag given several times is a list.
void Append(Texts* texts, const std::string& name, const std::string& text) {
  const auto [entry, is_new] = texts->emplace(name, text);
  if (!is_new) absl::StrAppend(&entry->second, ",", text);
}

absl::StatusOr<Flags> ReadFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!absl::StartsWith(argument, "--")) {
      return absl::InvalidArgumentError(
          absl::StrCat(argument, ": not a flag, accepted: --name=value, --name value"));
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (name == "help" || name == "version") {
      (name == "help" ? flags.help : flags.version) = true;
      continue;
    }
    const Option* option = nullptr;
    if (name != "config") {
      PHASOR_ASSIGN_OR_RETURN(option, FindOption(name));
    }
    std::string text;
    if (equals != std::string::npos) {
      text = argument.substr(equals + 1);
    } else if (option != nullptr && std::holds_alternative<Switch>(option->value)) {
      text = "true";
    } else if (i + 1 < arguments.size()) {
      text = arguments[++i];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": no value, accepted: --", name, "=value"));
    }
    if (option == nullptr) {
      flags.config = text;
    } else {
      Append(&flags.texts, option->name, text);
    }
  }
  return flags;
}

// Lines `name = value`; # begins a comment, quotes around a value are dropped.
absl::StatusOr<Texts> ReadConfig(const std::string& path) {
  std::ifstream file(path);
  // A stream opens directories, and reads nothing of them.
  if (!file || std::filesystem::is_directory(path)) {
    return absl::NotFoundError(absl::StrCat("config: cannot read '", path, "'"));
  }
  Texts texts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string where = absl::StrCat(path, ":", number, ": ");
    const std::string entry(absl::StripAsciiWhitespace(line.substr(0, line.find('#'))));
    if (entry.empty()) continue;
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(where, "no '=', accepted: name = value"));
    }
    const absl::StatusOr<const Option*> option =
        FindOption(std::string(absl::StripAsciiWhitespace(entry.substr(0, equals))));
    if (!option.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(where, option.status().message()));
    }
    std::string text(absl::StripAsciiWhitespace(entry.substr(equals + 1)));
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
      text = text.substr(1, text.size() - 2);
    }
    Append(&texts, (*option)->name, text);
  }
  return texts;
}

std::string VariableOf(const std::string& name) {
  return "PHASOR_" + absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}}));
}

// What options of security ask of each other.
absl::Status CheckSecurity(const ServerOptions& o) {
  const auto refuse = [](const char* problem) { return absl::InvalidArgumentError(problem); };
  if (!o.tls_key.empty() && o.tls_cert.empty()) return refuse("tls-key: set without tls-cert");
  if (o.tls_key.empty() && !o.tls_cert.empty()) return refuse("tls-cert: set without tls-key");
  if (!o.tls_client_ca.empty() && o.tls_cert.empty()) {
    return refuse("tls-client-ca: set without tls-cert, which turns on TLS");
  }
  if (!o.policy_file.empty() && o.tokens_file.empty() && o.tls_client_ca.empty()) {
    return refuse("policy-file: nobody has an identity, set tokens-file or tls-client-ca too");
  }
  if (!o.tls_cert.empty() || o.allow_plaintext) return absl::OkStatus();
  for (const std::string& text : o.listen) {
    PHASOR_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
    if (IsOfThisHost(address)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("listen: '", text,
                     "' would take plaintext from other hosts, set tls-cert and tls-key for "
                     "TLS, or allow-plaintext if the network is trusted"));
  }
  return absl::OkStatus();
}

std::string Version() { return "phasor-server " PHASOR_VERSION "\n"; }

}  // namespace

absl::Status ServerOptions::Validate() const {
  for (const Option& option : Options()) {
    const bool valid =
        std::visit([this](const auto& v) { return InRange(*this, v); }, option.value);
    if (!valid) return NotAccepted(option, Format(*this, option));
  }
  for (const std::string& address : listen) {
    PHASOR_RETURN_IF_ERROR(ParseListenAddress(address).status());
  }
  return CheckSecurity(*this);
}

absl::StatusOr<ServerCommand> ParseServerCommand(const std::vector<std::string>& arguments,
                                                 const GetEnvironment& environment) {
  ServerCommand command;
  PHASOR_ASSIGN_OR_RETURN(const Flags flags, ReadFlags(arguments));
  if (flags.help || flags.version) {
    command.print = flags.help ? ServerHelp() : Version();
    return command;
  }
  Texts config;
  const std::string path =
      flags.config.empty() ? environment(VariableOf("config")).value_or("") : flags.config;
  if (!path.empty()) {
    PHASOR_ASSIGN_OR_RETURN(config, ReadConfig(path));
  }
  for (const Option& option : Options()) {
    std::optional<std::string> text;
    if (const auto flag = flags.texts.find(option.name); flag != flags.texts.end()) {
      text = flag->second;
    } else if (const auto variable = environment(VariableOf(option.name)).value_or("");
               !variable.empty()) {
      text = variable;
    } else if (const auto line = config.find(option.name); line != config.end()) {
      text = line->second;
    }
    if (!text.has_value()) continue;
    const bool valid =
        std::visit([&](const auto& v) { return Set(&command.options, v, *text); }, option.value);
    if (!valid) return NotAccepted(option, *text);
  }
  PHASOR_RETURN_IF_ERROR(command.options.Validate());
  return command;
}

std::string ServerHelp() {
  std::string help =
      "phasor-server: computes position embeddings and rotary embeddings over gRPC.\n\n"
      "  --config FILE\n      lines of `name = value`, names as below without --\n"
      "  --help, --version\n";
  const ServerOptions defaults;
  for (const Option& option : Options()) {
    absl::StrAppendFormat(&help, "  --%s  (%s)\n      %s\n      default %s; accepted: %s\n",
                          option.name, VariableOf(option.name), option.help,
                          Format(defaults, option), Accepted(option));
  }
  absl::StrAppend(&help,
                  "\nA flag wins over the environment variable beside it, which wins over the "
                  "config file.\nExit status: 0 stopped in order, 1 could not start or drain, 2 "
                  "bad options.\n");
  return help;
}

}  // namespace phasor
