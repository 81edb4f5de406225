// SPDX-License-Identifier: Apache-2.0
// bench_inproc: compares a call of the client in process with the backend's own run of the same
// prepared request.
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/harness.h"
#include "bench/server/client_calls.h"
#include "bench/server/messages.h"
#include "kernels/backends.h"

namespace phasor::bench {
namespace {

constexpr int64_t kTokenBytes = 32 * 128 * 4;

struct Bench {
  const Arguments arguments;
  Report* report;
  Client client;
  Backend* backend;
};

void BenchRope(Bench& bench, int64_t tokens, std::optional<double> target) {
  const RopeCase test_case = RopeOf(tokens * kTokenBytes);
  const Memory x(test_case.q_bytes());
  const Memory y(test_case.q_bytes());
  FillNormal(test_case.dtype, x);
  FillNormal(test_case.dtype, y);
  const RopeCall call = CallOf(test_case, x.data());
  const RopeRun run(test_case);
  Rotate(bench.client, call);
  run.Run(*bench.backend, y.data(), y.data());
  if (std::memcmp(x.data(), y.data(), static_cast<size_t>(x.size())) != 0) {
    Die("a rotation in process has other bytes");
  }
  const auto seconds = MedianSeconds(
      bench.arguments, {Candidate{[&] { Rotate(bench.client, call); }},
                        Candidate{[&] { run.Run(*bench.backend, y.data(), y.data()); }}});
  Row row{.name = "inproc_rope",
          .shape = absl::StrCat(tokens, " x 32 x 128 in place"),
          .dtype = "FLOAT32",
          .threads = 1,
          .cache = "warm",
          .unit = "us",
          .baseline = "the backend alone"};
  bench.report->Add(CostRow(std::move(row), seconds[0] * 1e6, seconds[1] * 1e6, target));
}

int Main(int argc, char** argv) {
  const Arguments arguments = ParseArguments(argc, argv);
  const auto backend = MakeBackend({.threads = 1});
  if (!backend.ok()) Die(backend.status().ToString());
  Report report("bench_inproc", arguments, (*backend)->target());
  Bench bench{arguments, &report, ConnectTo("inproc:", 1), backend->get()};
  BenchRope(bench, 1, std::nullopt);
  BenchRope(bench, 16, std::nullopt);
  BenchRope(bench, 1024, 0.95);
  BenchRope(bench, 16384, 0.95);
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
