// SPDX-License-Identifier: Apache-2.0
// Reads golden values from JSON.
#include "tests/conformance/golden.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/base/text.h"
#include "phasor/v1/spec.pb.h"
#include "proto/convert_spec.h"

namespace phasor::testing {
namespace {

using nlohmann::json;

std::vector<Real> Reals(const json& strings) {
  std::vector<Real> numbers;
  for (const json& digits : strings) numbers.emplace_back(digits.get<std::string>());
  return numbers;
}

Table<Real> RealTable(const json& object, const char* key) {
  Table<Real> table;
  if (!object.contains(key)) return table;
  for (const json& row : object.at(key)) table.push_back(Reals(row));
  return table;
}

Table<double> DoubleTable(const json& object, const char* key) {
  return object.contains(key) ? object.at(key).get<Table<double>>() : Table<double>();
}

void AddRotated(const json& object, const char* key, Dtype dtype, GoldenCase& golden) {
  if (!object.contains(key)) return;
  const json& rotated = object.at(key);
  golden.upstream_rotated.push_back({dtype, rotated.at("positions").get<std::vector<int64_t>>(),
                                     rotated.at("lanes").get<std::vector<int64_t>>(),
                                     DoubleTable(rotated, "values")});
}

GoldenCase FromJson(const json& object) {
  GoldenCase golden;
  golden.name = object.at("name");
  golden.preset = object.at("preset");
  golden.given = object.at("given").dump();
  golden.spec = object.at("spec").dump();
  golden.output = object.at("output");
  golden.upstream = object.at("upstream");
  golden.arithmetic = object.at("arithmetic");
  golden.encoding = object.at("spec").at("kind") == "SPEC_KIND_ENCODING";
  golden.positions = object.at("positions").get<Table<double>>();
  golden.pairs = object.at("pairs");
  golden.axis = object.at("axis").get<std::vector<int64_t>>();
  golden.frequency_pairs = object.at("frequency_pairs").get<std::vector<int64_t>>();
  golden.attention_factor = std::stod(object.at("attention_factor").get<std::string>());
  if (!golden.axis.empty()) golden.inv_freq = Reals(object.at("inv_freq"));
  golden.samples = object.at("samples").get<std::vector<int64_t>>();
  golden.cos = RealTable(object, "cos");
  golden.sin = RealTable(object, "sin");
  golden.values = RealTable(object, "values");
  golden.upstream_inv_freq = object.value("upstream_inv_freq", std::vector<double>());
  golden.upstream_cos = DoubleTable(object, "upstream_cos");
  golden.upstream_sin = DoubleTable(object, "upstream_sin");
  golden.upstream_values = DoubleTable(object, "upstream_values");
  AddRotated(object, "upstream_rotated_f32", Dtype::kFloat32, golden);
  AddRotated(object, "upstream_rotated_bf16", Dtype::kBFloat16, golden);
  return golden;
}

}  // namespace

std::vector<GoldenCase> ReadGoldenCases(const std::string& folder) {
  std::vector<GoldenCase> cases;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    for (const json& object : json::parse(file)) cases.push_back(FromJson(object));
  }
  std::sort(cases.begin(), cases.end(),
            [](const GoldenCase& a, const GoldenCase& b) { return a.name < b.name; });
  return cases;
}

absl::StatusOr<Spec> SpecFromJson(const std::string& json_text) {
  v1::Spec wire;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json_text, &wire);
  if (!parsed.ok()) return absl::InvalidArgumentError(StrCat("spec: ", parsed.ToString()));
  return SpecFromWire(wire, "spec");
}

}  // namespace phasor::testing
