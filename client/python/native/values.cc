// SPDX-License-Identifier: Apache-2.0
// Converts answers and options between C++ and Python.
#include "client/python/native/values.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>

#include "client/python/native/helpers.h"
#include "kernels/base/dtype.h"
#include "kernels/spec/spec_json.h"

namespace phasor::python {
namespace {

nb::object OrNone(std::optional<int64_t> value) {
  return value.has_value() ? nb::cast(*value) : nb::none();
}

// (head, pair, axis, whole turns, fraction, inv_freq, phase offset, columns, lanes, lanes out)
nb::tuple ToTuple(const PairDetail& pair) {
  return nb::make_tuple(pair.head, pair.pair, pair.axis, pair.turns.whole, pair.turns.fraction,
                        pair.inv_freq, pair.phase_offset,
                        nb::make_tuple(OrNone(pair.sine_column), OrNone(pair.cosine_column)),
                        nb::make_tuple(OrNone(pair.first_lane), OrNone(pair.second_lane)),
                        nb::make_tuple(OrNone(pair.first_lane_out), OrNone(pair.second_lane_out)));
}

std::string Optional(nb::handle value, const char* name) {
  return value.is_none() ? std::string() : ValueOf<std::string>(value, name);
}

TlsOptions ToTls(nb::handle tls) {
  return {.ca_file = Optional(tls.attr("ca_file"), "tls.ca_file"),
          .cert_file = Optional(tls.attr("cert_file"), "tls.cert_file"),
          .key_file = Optional(tls.attr("key_file"), "tls.key_file"),
          .server_name = Optional(tls.attr("server_name"), "tls.server_name")};
}

}  // namespace

nb::dict ToDict(const Preset& preset) {
  nb::dict dict;
  dict["name"] = preset.name;
  dict["summary"] = preset.summary;
  dict["source"] = preset.source;
  dict["required_fields"] = nb::tuple(nb::cast(preset.required_fields));
  dict["spec"] = ToJson(preset.spec).dump();
  dict["context_length"] = OrNone(preset.context_length);
  dict["verified"] = preset.verified;
  dict["note"] = preset.note;
  return dict;
}

nb::dict ToDict(const ServerInfo& info) {
  nb::dict dict, encoders;
  dict["version"] = info.version;
  dict["numerics_version"] = info.numerics_version;
  dict["backends"] = nb::tuple(nb::cast(info.backends));
  dict["cpu_target"] = info.cpu_target;
  dict["cpu_threads"] = info.cpu_threads;
  dict["listeners"] = nb::tuple(nb::cast(info.listeners));
  dict["max_message_bytes"] = info.max_message_bytes;
  dict["max_header_bytes"] = info.max_header_bytes;
  dict["max_inflight_bytes"] = info.max_inflight_bytes;
  dict["inline_bytes"] = info.inline_bytes;
  dict["max_batch_items"] = info.max_batch_items;
  dict["lease_socket"] = info.lease_socket;
  dict["device_uuid"] = info.device_uuid;
  for (const EncoderInfo& encoder : info.encoders) {
    encoders[nb::cast(encoder.name)] = encoder.spec_fingerprint;
  }
  dict["encoders"] = encoders;
  return dict;
}

nb::dict ToDict(const SpecDetails& details) {
  nb::dict dict;
  nb::list pairs;
  for (const PairDetail& pair : details.pairs) pairs.append(ToTuple(pair));
  dict["spec"] = ToJson(details.spec).dump();
  dict["pairs"] = pairs;
  dict["amplitude"] = details.amplitude;
  dict["width"] = details.width;
  dict["fingerprint"] = details.info.spec_fingerprint;
  dict["numerics_version"] = details.info.numerics_version;
  return dict;
}

// A list of parts: (sub_config, model_type, fingerprint, error, layers). A layer is (layer_type,
// spec or None), a spec (JSON, fingerprint, amplitude, width).
nb::list ToList(const ModelDetails& model) {
  std::vector<nb::object> specs;
  for (const ModelSpec& spec : model.specs) {
    specs.push_back(
        nb::make_tuple(ToJson(spec.spec).dump(), spec.fingerprint, spec.amplitude, spec.width));
  }
  nb::list parts;
  for (const ModelPart& part : model.parts) {
    nb::list layers;
    for (const ModelLayer& layer : part.layers) {
      layers.append(nb::make_tuple(layer.layer_type,
                                   layer.spec.has_value() ? specs[*layer.spec] : nb::none()));
    }
    parts.append(
        nb::make_tuple(part.sub_config, part.model_type, part.fingerprint, part.error, layers));
  }
  return parts;
}

nb::dict ToDict(const TableInfo& table) {
  nb::dict dict;
  dict["name"] = table.name;
  dict["shape"] = nb::tuple(nb::cast(table.tensor.shape));
  dict["dtype"] = static_cast<int>(table.tensor.dtype);
  dict["sha256"] = table.sha256;
  return dict;
}

absl::Duration ToDuration(double seconds) { return absl::Seconds(std::max(-1.0, seconds)); }

ClientOptions ToClientOptions(nb::dict options) {
  ClientOptions result;
  result.timeout = ToDuration(ValueOf<double>(options["timeout"], "timeout"));
  result.max_attempts = ValueOf<int>(options["max_attempts"], "max_attempts");
  result.channels = ValueOf<int>(options["channels"], "channels");
  result.inproc_threads = ValueOf<int>(options["threads"], "threads");
  result.inproc_backend = ValueOf<std::string>(options["backend"], "backend");
  result.staging_bytes = ValueOf<int64_t>(options["staging_bytes"], "staging_bytes");
  if (!options["tls"].is_none()) result.tls = ToTls(options["tls"]);
  result.token = Optional(options["token"], "token");
  result.token_file = Optional(options["token_file"], "token_file");
  result.token_over_plaintext =
      ValueOf<bool>(options["token_over_plaintext"], "token_over_plaintext");
  return result;
}

}  // namespace phasor::python
