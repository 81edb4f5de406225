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

// The options and encoders that a file sets.
struct ConfigFile {
  struct Value {
    std::string text;   // in the form of SetOption
    std::string where;  // "phasor.txtpb:3"; without a line in JSON
  };
  std::map<std::string, Value> values;  // by name of the option
  std::vector<NamedSpec> encoders;
};

// Reads the file at `path`: JSON if its name ends in .json; text format if it ends in .txtpb,
// .textproto or .pbtxt; otherwise JSON if it begins with a brace. Checks encoders, but not values.
// NOT_FOUND: the file cannot be read. INVALID_ARGUMENT, and the errors of ResolveSpec: one line per
// error, "<path>:<line>: ..." if protobuf reports a line. An unknown field comes with the nearest
// name.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path);

// Prints `options` in text format, so that reading it back gives the same options. The comment on
// each line is the origin of the option's value in `origins`.
std::string PrintConfig(const ServerOptions& options,
                        const std::map<std::string, std::string>& origins);

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_CONFIG_FILE_H_
