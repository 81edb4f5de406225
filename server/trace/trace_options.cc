// SPDX-License-Identifier: Apache-2.0
// Reads the OTEL_* variables: those of traces win over those of all signals.
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
#include "server/trace/trace_options.h"

#include <grpc/grpc.h>
#include <grpc/slice.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "server/base/regular_file.h"

namespace phasor::trace {
namespace {

constexpr char kDefaultPort[] = ":4317";
constexpr size_t kMaxCertificateBytes = 1 << 20;

absl::Status Refuse(const std::string& name, const std::string& value,
                    const std::string& accepted) {
  return InvalidAt(name, "'", value, "' is not accepted; use ", accepted);
}

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  // Empty if it is not set; an empty variable counts as not set.
  std::string Get(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }
  // OTEL_EXPORTER_OTLP_TRACES_X if it is set, or else OTEL_EXPORTER_OTLP_X.
  std::string ExporterName(const std::string& name) const {
    const std::string own = "OTEL_EXPORTER_OTLP_TRACES_" + name;
    return Get(own).empty() ? "OTEL_EXPORTER_OTLP_" + name : own;
  }
  std::string Exporter(const std::string& name) const { return Get(ExporterName(name)); }
  absl::Status Switch(const std::string& name, bool* value) const {
    const std::string text = Get(name);
    *value = absl::EqualsIgnoreCase(text, "true");
    if (*value || text.empty() || absl::EqualsIgnoreCase(text, "false")) return absl::OkStatus();
    return Refuse(name, text, "true or false");
  }
  absl::Status Number(const std::string& name, int64_t least, int64_t* value) const {
    const std::string text = Get(name);
    if (text.empty()) return absl::OkStatus();
    int64_t number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < least || number > 1'000'000'000) {
      return Refuse(name, text, absl::StrCat("a whole number, at least ", least));
    }
    *value = number;
    return absl::OkStatus();
  }
  absl::Status Milliseconds(const std::string& name, absl::Duration* value) const {
    int64_t ms = absl::ToInt64Milliseconds(*value);
    PHASOR_RETURN_IF_ERROR(Number(name, 1, &ms));
    *value = absl::Milliseconds(ms);
    return absl::OkStatus();
  }

 private:
  const Environment& environment_;
};

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::string PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexValue(text[i + 1]) >= 0 &&
        HexValue(text[i + 2]) >= 0) {
      decoded.push_back(static_cast<char>(HexValue(text[i + 1]) * 16 + HexValue(text[i + 2])));
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

// "key=value,key=value", percent-encoded. Entries without '=' are left out, as OpenTelemetry says.
std::vector<std::pair<std::string, std::string>> Pairs(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& entry :
       std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipWhitespace()))) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    if (!absl::StrContains(entry, '=')) continue;
    pairs.emplace_back(PercentDecoded(absl::StripAsciiWhitespace(pair.first)),
                       PercentDecoded(absl::StripAsciiWhitespace(pair.second)));
  }
  return pairs;
}

// Whether `text` is "host" or "host:port".
bool IsAddress(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (text.empty() || absl::StrContains(text, '/')) return false;
  if (colon == text.npos || text.back() == ']') return true;
  int port = 0;
  return colon > 0 && absl::SimpleAtoi(text.substr(colon + 1), &port) && port > 0 && port < 65536;
}

absl::Status ReadEndpoint(const Variables& variables, TraceOptions* options) {
  const std::string text = variables.Exporter("ENDPOINT");
  absl::string_view rest = text;
  bool insecure = false;
  PHASOR_RETURN_IF_ERROR(variables.Switch(variables.ExporterName("INSECURE"), &insecure));
  options->tls = !insecure;
  if (absl::ConsumePrefix(&rest, "http://")) {
    options->tls = false;
  } else if (absl::ConsumePrefix(&rest, "https://")) {
    options->tls = true;
  }
  absl::ConsumeSuffix(&rest, "/");
  if (!IsAddress(rest)) {
    return Refuse(variables.ExporterName("ENDPOINT"), text,
                  "http://host:4317 or https://host:4317");
  }
  const bool has_port = rest.rfind(':') != rest.npos && rest.back() != ']';
  options->endpoint = absl::StrCat(rest, has_port ? "" : kDefaultPort);
  const std::string protocol = variables.Exporter("PROTOCOL");
  if (protocol.empty() || protocol == "grpc") return absl::OkStatus();
  return Refuse(variables.ExporterName("PROTOCOL"), protocol, "grpc");
}

absl::Status ReadSampler(const Variables& variables, TraceOptions* options) {
  const std::string text = variables.Get("OTEL_TRACES_SAMPLER");
  if (text.empty()) return absl::OkStatus();
  absl::string_view name = text;
  options->parent_based = absl::ConsumePrefix(&name, "parentbased_");
  if (name == "always_on") return absl::OkStatus();
  if (name == "always_off") {
    options->ratio = 0;
    return absl::OkStatus();
  }
  if (name != "traceidratio") {
    return Refuse("OTEL_TRACES_SAMPLER", text,
                  "always_on, always_off or traceidratio, each also with parentbased_ before it");
  }
  const std::string ratio = variables.Get("OTEL_TRACES_SAMPLER_ARG");
  if (ratio.empty()) return absl::OkStatus();
  if (absl::SimpleAtod(ratio, &options->ratio) && options->ratio >= 0 && options->ratio <= 1) {
    return absl::OkStatus();
  }
  return Refuse("OTEL_TRACES_SAMPLER_ARG", ratio, "a number from 0 to 1");
}

// gRPC aborts the process when it is to send a header that it does not take. A value may be secret,
// so the error does not show it.
absl::Status CheckHeaders(const std::vector<std::pair<std::string, std::string>>& headers,
                          const std::string& variable) {
  const auto slice = [](const std::string& text) {
    return grpc_slice_from_static_buffer(text.data(), text.size());
  };
  for (const auto& [key, value] : headers) {
    if (grpc_header_key_is_legal(slice(key)) == 0) {
      return Refuse(variable, key, "keys of a-z, 0-9, '-', '_' and '.'");
    }
    if (absl::EndsWith(key, "-bin") || grpc_header_nonbin_value_is_legal(slice(value)) != 0) {
      continue;
    }
    return InvalidAt(variable, "the value of '", key,
                     "' is not accepted; use printable ASCII characters");
  }
  return absl::OkStatus();
}

// OTEL_SERVICE_NAME wins over service.name of OTEL_RESOURCE_ATTRIBUTES.
void ReadResource(const Variables& variables, TraceOptions* options) {
  options->resource = Pairs(variables.Get("OTEL_RESOURCE_ATTRIBUTES"));
  const std::string name = variables.Get("OTEL_SERVICE_NAME");
  const auto is_name = [](const auto& attribute) { return attribute.first == "service.name"; };
  if (!name.empty()) std::erase_if(options->resource, is_name);
  if (std::none_of(options->resource.begin(), options->resource.end(), is_name)) {
    options->resource.emplace_back("service.name", name.empty() ? "phasor" : name);
  }
}

}  // namespace

absl::StatusOr<TraceOptions> ParseTraceOptions(const Environment& environment) {
  const Variables variables(environment);
  TraceOptions options;
  if (variables.Exporter("ENDPOINT").empty()) return options;
  bool off = false;
  PHASOR_RETURN_IF_ERROR(variables.Switch("OTEL_SDK_DISABLED", &off));
  const std::string exporter = variables.Get("OTEL_TRACES_EXPORTER");
  if (off || exporter == "none") return options;
  if (!exporter.empty() && exporter != "otlp") {
    return Refuse("OTEL_TRACES_EXPORTER", exporter, "otlp or none");
  }
  PHASOR_RETURN_IF_ERROR(ReadEndpoint(variables, &options));
  PHASOR_RETURN_IF_ERROR(ReadSampler(variables, &options));
  ReadResource(variables, &options);
  options.ca_file = variables.Exporter("CERTIFICATE");
  options.headers = Pairs(variables.Exporter("HEADERS"));
  for (auto& [key, value] : options.headers) absl::AsciiStrToLower(&key);
  PHASOR_RETURN_IF_ERROR(CheckHeaders(options.headers, variables.ExporterName("HEADERS")));
  PHASOR_RETURN_IF_ERROR(
      variables.Milliseconds(variables.ExporterName("TIMEOUT"), &options.export_timeout));
  PHASOR_RETURN_IF_ERROR(
      variables.Milliseconds("OTEL_BSP_SCHEDULE_DELAY", &options.schedule_delay));
  PHASOR_RETURN_IF_ERROR(variables.Number("OTEL_BSP_MAX_QUEUE_SIZE", 1, &options.max_queue_spans));
  PHASOR_RETURN_IF_ERROR(
      variables.Number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 1, &options.max_batch_spans));
  options.max_batch_spans = std::min(options.max_batch_spans, options.max_queue_spans);
  return options;
}

absl::Status ReadAuthorities(TraceOptions* options) {
  if (!options->tls || options->ca_file.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> text = ReadRegularFile(options->ca_file, kMaxCertificateBytes);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("OTEL_EXPORTER_OTLP_CERTIFICATE: '", options->ca_file, "' ",
                                     text.status().message()));
  }
  options->authorities = *std::move(text);
  return absl::OkStatus();
}

}  // namespace phasor::trace
