// SPDX-License-Identifier: Apache-2.0
// Formats results as text tables and as JSON. Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_OUTPUT_H_
#define PHASOR_CLIENT_CLI_OUTPUT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "client/connection.h"
#include "client/tensor.h"
#include "kernels/spec/presets.h"

namespace phasor::cli {

// A table with aligned columns. Rows may be shorter than the header.
std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows);

// Element i of a dense tensor.
double ElementAt(const TensorView& tensor, int64_t i);

// One line for each row of the last dimension, with its index first. At most `columns` numbers per
// line; 0 for all.
std::string FormatTensor(const TensorView& tensor, int64_t columns);
// {"dtype", "shape", "values"}; the values are nested like the shape.
nlohmann::ordered_json ToJson(const TensorView& tensor);

nlohmann::ordered_json ToJson(const RunInfo& info);
std::string FormatInfo(const RunInfo& info);

// Turns per unit of position, exactly: "0x0.<16 hexadecimal digits>", after "-1 + " or the like if
// there are whole turns.
std::string FormatTurns(Frequency frequency);
std::string FormatDetails(const SpecDetails& details);
nlohmann::ordered_json ToJson(const SpecDetails& details);

// For each part a line about it, and a row for each kind of layer with the numbers of its layers.
std::string FormatModel(const ModelDetails& model);
nlohmann::ordered_json ToJson(const ModelDetails& model);

// Three digits of a number, and an index, or "-" if it is negative.
std::string ShortNumber(double value);
std::string IndexText(int64_t index);
// The first bad row is there if a row is bad.
nlohmann::ordered_json ToJson(const KeyDifference& found);

std::string FormatServerInfo(const ServerInfo& info);
nlohmann::ordered_json ToJson(const ServerInfo& info);

std::string FormatPresets(absl::Span<const Preset> presets);
nlohmann::ordered_json ToJson(const Preset& preset);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_OUTPUT_H_
