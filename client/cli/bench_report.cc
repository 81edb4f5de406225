// SPDX-License-Identifier: Apache-2.0
// Writes the result of `phasor bench` as JSON and as a table.
#include "client/cli/bench_report.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/cli/output.h"

namespace phasor::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<const char*, double> kPercentiles[] = {
    {"p50_ms", 0.5}, {"p90_ms", 0.9}, {"p99_ms", 0.99}, {"p999_ms", 0.999}, {"max_ms", 1.0}};

Json LoadJson(LoadResult& result, int64_t call_bytes) {
  Json json = {{"seconds", absl::ToDoubleSeconds(result.elapsed)},
               {"calls", result.succeeded},
               {"calls_per_second", result.per_second()},
               {"bytes_per_second", result.per_second() * static_cast<double>(call_bytes)}};
  for (const auto& [name, q] : kPercentiles) json[name] = result.Percentile(q) * 1e3;
  json["unsent"] = result.unsent;
  json["errors"] = Json::array();
  for (const auto& [code, errors] : result.errors) {
    json["errors"].push_back({{"code", absl::StatusCodeToString(code)},
                              {"count", errors.count},
                              {"first", errors.message}});
  }
  return json;
}

std::vector<std::string> RowOf(const std::string& who, const Json& result) {
  std::vector<std::string> row = {
      who, absl::StrFormat("%.1f", result["calls_per_second"].get<double>()),
      absl::StrFormat("%.1f", result["bytes_per_second"].get<double>() / 1e6)};
  for (const auto& [name, q] : kPercentiles) {
    row.push_back(absl::StrFormat("%.3f", result[name].get<double>()));
  }
  return row;
}

std::string NotesOn(const std::string& who, const Json& result) {
  std::string notes;
  for (const Json& error : result["errors"]) {
    notes += absl::StrFormat("%s: %d x %s, first: %s\n", who, error["count"].get<int64_t>(),
                             error["code"].get<std::string>(), error["first"].get<std::string>());
  }
  if (const auto unsent = result["unsent"].get<int64_t>(); unsent > 0) {
    notes += absl::StrFormat(
        "%s: %d calls were due and never sent: the rate is more than there is, or --concurrency "
        "too low\n",
        who, unsent);
  }
  return notes;
}

}  // namespace

Json ToJson(BenchReport& report) {
  const BenchTask& task = report.task;
  Json json = {{"method", task.rotary ? "ApplyRoPE" : "Encode"},
               {"server", report.server},
               {"mode", std::string(ModeName(task.mode))},
               {"shared", task.shared},
               {"dtype", std::string(Name(task.tensor.dtype))},
               {"shape", task.tensor.shape},
               {"bytes_per_call", task.call_bytes()},
               {"concurrency", report.concurrency}};
  if (report.rate > 0) json["rate"] = report.rate;
  json["phasor"] = LoadJson(report.phasor, task.call_bytes());
  if (!report.echo.has_value()) return json;
  json["echo"] = LoadJson(*report.echo, task.call_bytes());
  const double bare = report.echo->per_second();
  json["ratio"] = bare > 0 ? report.phasor.per_second() / bare : 0;
  return json;
}

std::string FormatBenchReport(const Json& json) {
  std::string text = absl::StrFormat(
      "%s of %s %s%s, %s, %s, %d at a time; the first answer was right\n\n",
      json["method"].get<std::string>(), json["shape"].dump(), json["dtype"].get<std::string>(),
      json["shared"].get<bool>() ? " in shared memory" : "", json["mode"].get<std::string>(),
      json["server"].get<std::string>(), json["concurrency"].get<int64_t>());
  std::vector<std::vector<std::string>> rows;
  std::string notes;
  for (const char* const who : {"phasor", "echo"}) {
    if (!json.contains(who)) continue;
    rows.push_back(RowOf(who, json[who]));
    notes += NotesOn(who, json[who]);
  }
  text += FormatTable(
      {"", "calls/s", "MB/s both ways", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"}, rows);
  if (json.contains("ratio")) {
    text += absl::StrFormat("\nphasor makes %.2f of the calls of the bare wire\n",
                            json["ratio"].get<double>());
  }
  return text + (notes.empty() ? "" : "\n" + notes);
}

}  // namespace phasor::cli
