// SPDX-License-Identifier: Apache-2.0
// The configuration file: phasor.config.v1.ServerConfig, as protobuf's text format or JSON.
#ifndef PHASOR_SERVER_CONFIG_CONFIG_FILE_H_
#define PHASOR_SERVER_CONFIG_CONFIG_FILE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/spec/encoder_set.h"
#include "server/config/option_table.h"

namespace phasor {

// Largest file that is read.
inline constexpr size_t kMaxConfigBytes = size_t{16} << 20;

// What a file sets.
struct ConfigFile {
  struct Value {
    std::string text;   // as SetOption reads it
    std::string where;  // "phasor.txtpb:3"; JSON has no lines
  };
  std::map<std::string, Value> values;  // by option
  std::vector<NamedSpec> encoders;
};

// Reads the file at `path`: JSON if its name ends in .json, text format for .txtpb, .textproto and
// .pbtxt, else JSON if it begins with a brace. Values are not checked, encoders are.
// NOT_FOUND: it cannot be read. INVALID_ARGUMENT, and what ResolveSpec returns: one line per error,
// "<path>:<line>: ..." where protobuf says the line; unknown fields come with the nearest name.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path);

// `options` as text format that reads back as the same; the comment behind each line is what
// `origins` says of the option.
std::string PrintConfig(const ServerOptions& options,
                        const std::map<std::string, std::string>& origins);

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_CONFIG_FILE_H_
