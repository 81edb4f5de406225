// SPDX-License-Identifier: Apache-2.0
// bench_shm: rotations in memory that the server maps, beside the same rotations in this process,
// and an empty call beside one that travels.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness.h"
#include "bench/server/client_calls.h"
#include "bench/server/messages.h"
#include "bench/server/servers.h"
#include "kernels/backend.h"

namespace phasor::bench {
namespace {

constexpr int64_t kMebi = 1 << 20;

struct Bench {
  const Arguments arguments;
  Report* report;
  Client shared;
  Client inproc;
};

SharedMemory SharedOf(const Client& client, int64_t bytes) {
  auto memory = client.AllocateShared(bytes);
  if (!memory.ok() || !memory->shared()) Die("no shared memory");
  return *std::move(memory);
}

void BenchRope(Bench& bench, int64_t payload_mib) {
  const RopeCase test_case = RopeOf(payload_mib * kMebi);
  const SharedMemory x = SharedOf(bench.shared, test_case.q_bytes());
  const Memory here(test_case.q_bytes());
  FillNormal(test_case.dtype, here);
  std::memcpy(x.data(), here.data(), static_cast<size_t>(x.size()));
  const RopeCall shared = CallOf(test_case, x.data());
  const RopeCall inproc = CallOf(test_case, here.data());
  Rotate(bench.shared, shared);
  Rotate(bench.inproc, inproc);
  if (std::memcmp(x.data(), here.data(), static_cast<size_t>(x.size())) != 0) {
    Die("a rotation in shared memory has other bytes");
  }
  const auto seconds =
      MedianSeconds(bench.arguments, {Candidate{[&] { Rotate(bench.shared, shared); }},
                                      Candidate{[&] { Rotate(bench.inproc, inproc); }}});
  const auto rate = [&](double s) { return 2.0 * static_cast<double>(x.size()) / s / 1e9; };
  Row row{.name = "shm_rope",
          .shape = absl::StrCat(payload_mib, " MiB in place"),
          .dtype = "FLOAT32",
          .threads = Cores(),
          .unit = "GB/s",
          .baseline = "in process"};
  const std::optional<double> target = payload_mib >= 16 ? std::optional(0.9) : std::nullopt;
  bench.report->Add(RateRow(std::move(row), rate(seconds[0]), rate(seconds[1]), target));
}

// No tokens: what the names of memory cost.
void BenchEmpty(Bench& bench) {
  const RopeCase test_case = RopeOf(0);
  const SharedMemory x = SharedOf(bench.shared, 4096);
  const Memory here(4096);
  const RopeCall shared = CallOf(test_case, x.data());
  const RopeCall plain = CallOf(test_case, here.data());
  const int calls = bench.arguments.quick ? 100 : 2000;
  const auto many = [&](const RopeCall& call) {
    return Candidate{[&bench, &call, calls] {
                       for (int i = 0; i < calls; ++i) Rotate(bench.shared, call);
                     },
                     Cache::kAny};
  };
  const auto seconds = MedianSeconds(bench.arguments, {many(shared), many(plain)});
  Row row{.name = "shm_empty",
          .shape = "no tokens, 1 in flight, Unix socket",
          .dtype = "FLOAT32",
          .threads = Cores(),
          .unit = "us",
          .baseline = "empty call"};
  bench.report->Add(
      CostRow(std::move(row), seconds[0] / calls * 1e6, seconds[1] / calls * 1e6, 1 / 1.15));
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc == 5 && mode == "--serve") return Serve(argv[2], argv[3], std::atoll(argv[4]));
  const Arguments arguments = ParseArguments(argc, argv);
  const TemporaryDirectory directory;
  const ChildServer server("phasor", directory.path());
  const auto backend = MakeBackend({.threads = 1});
  Report report("bench_shm", arguments, backend.ok() ? (*backend)->target() : "?");
  Bench bench{arguments, &report, ConnectTo(server.unix_socket()), ConnectTo("inproc:")};
  BenchEmpty(bench);
  for (const int64_t mib : {1, 16, 64, 256}) BenchRope(bench, mib);
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
