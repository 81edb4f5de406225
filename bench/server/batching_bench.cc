// SPDX-License-Identifier: Apache-2.0
// bench_batching: clients rotate one token at a time on an engine whose backend is a fake device
// with a fixed time per trip. Shows what batching saves, and that it costs a lone client nothing.
// The baseline is the same engine and device with one call per run.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "bench/harness.h"
#include "kernels/backends.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/borrowed_backend.h"
#include "tests/support/fake_driver.h"
#include "tests/support/one_token_load.h"

namespace phasor::bench {
namespace {

constexpr absl::Duration kTrip = absl::Microseconds(200);

std::unique_ptr<Backend> Make(const std::string& name) {
  auto backend = MakeBackend({.name = name, .threads = 1});
  if (!backend.ok()) Die(backend.status().ToString());
  return *std::move(backend);
}

struct Outcome {
  double launches = 0;
  double seconds = 0;
  double p50_us = 0;
  double p99_us = 0;
};

Outcome RunLoad(int clients, int calls, bool merged) {
  const auto device = std::make_shared<testing::FakeDevice>();
  device->SetTrip(kTrip);
  cuda::CudaBackend backend(std::make_unique<testing::FakeDriver>(device), Make("cpu"),
                            {.least_bytes = 0});
  testing::BorrowedBackend separate(&backend);  // hides the backend's batch policy
  engine::EngineOptions options;
  options.workers = 4;
  engine::Engine engine(options, merged ? static_cast<Backend*>(&backend) : &separate,
                        Clock::Real());
  testing::OneTokenLoad load(clients, calls);
  const absl::Time start = absl::Now();
  load.Run(engine);
  Outcome outcome{.launches = static_cast<double>(backend.state().launches),
                  .seconds = absl::ToDoubleSeconds(absl::Now() - start)};
  if (load.Wrong(*Make("reference")) != 0) Die("an answer has other bytes");
  std::vector<double> latencies;
  for (const absl::Duration d : load.latencies()) {
    latencies.push_back(absl::ToDoubleMicroseconds(d));
  }
  std::sort(latencies.begin(), latencies.end());
  outcome.p50_us = latencies[latencies.size() / 2];
  outcome.p99_us = latencies[latencies.size() * 99 / 100];
  return outcome;
}

void BenchClients(Report& report, bool quick, int clients) {
  const int calls = quick ? 10 : clients == 1 ? 2000 : 200;
  std::vector<double> launches[2], rates[2], p50[2], p99[2];
  for (int round = 0; round < (quick ? 1 : 5); ++round) {
    for (const int merged : {0, 1}) {
      const Outcome outcome = RunLoad(clients, calls, merged == 1);
      launches[merged].push_back(outcome.launches);
      rates[merged].push_back(clients * calls / outcome.seconds);
      p50[merged].push_back(outcome.p50_us);
      p99[merged].push_back(outcome.p99_us);
    }
  }
  const auto row = [&](std::string name, std::string unit) {
    return Row{.name = std::move(name),
               .shape = absl::StrCat(clients, " clients, one token each"),
               .dtype = "BFLOAT16",
               .threads = 4,
               .unit = std::move(unit),
               .baseline = "one call a run"};
  };
  const bool many = clients > 1;
  report.Add(CostRow(row("launches", "total"), Median(launches[1]), Median(launches[0]),
                     clients >= 64 ? std::optional(20.0) : std::nullopt));
  report.Add(RateRow(row("calls", "calls/s"), Median(rates[1]), Median(rates[0])));
  report.Add(CostRow(row("p50", "us"), Median(p50[1]), Median(p50[0]),
                     many ? std::nullopt : std::optional(0.95)));
  report.Add(CostRow(row("p99", "us"), Median(p99[1]), Median(p99[0])));
}

int Main(int argc, char** argv) {
  const Arguments arguments = ParseArguments(argc, argv);
  Report report("bench_batching", arguments, "fake device, 200 us a trip");
  for (const int clients : {1, 8, 64, 256}) BenchClients(report, arguments.quick, clients);
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
