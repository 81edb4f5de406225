// SPDX-License-Identifier: Apache-2.0
// The result of `phasor bench` as JSON and as a table. Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_BENCH_REPORT_H_
#define PHASOR_CLIENT_CLI_BENCH_REPORT_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "client/cli/bench_task.h"
#include "client/cli/load.h"

namespace phasor::cli {

// The results of one benchmark.
struct BenchReport {
  BenchTask task;
  std::string server;
  int concurrency = 1;
  double rate = 0;  // operations per second; 0: as many as possible
  LoadResult phasor;
  std::optional<LoadResult> echo;
};

nlohmann::ordered_json ToJson(BenchReport& report);
// Formats the JSON from ToJson as a table.
std::string FormatBenchReport(const nlohmann::ordered_json& json);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_BENCH_REPORT_H_
