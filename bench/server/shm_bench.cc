// SPDX-License-Identifier: Apache-2.0
// bench_shm: compares rotations in memory that the server maps with the same rotations in this
// process; a call with no tokens with one that travels; and rotations of ordinary memory that the
// client stages in shared memory with the same rotations sent in messages, and with messages that
// come back as they are.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/harness.h"
#include "bench/server/client_calls.h"
#include "bench/server/messages.h"
#include "bench/server/raw_client.h"
#include "bench/server/servers.h"
#include "kernels/backends.h"

namespace phasor::bench {
namespace {

constexpr int64_t kMebi = 1 << 20;

struct Bench {
  const Arguments arguments;
  Report* report;
  Client shared;
  Client other;  // of a server that never gets large calls
  Client staged;
  Client inproc;
  RawClient echo;
};

SharedMemory SharedOf(const Client& client, int64_t bytes) {
  auto memory = client.AllocateShared(bytes);
  if (!memory.ok() || !memory->shared()) Die("no shared memory");
  return *std::move(memory);
}

// The floor is a call without tokens to another server, after which this process does the same
// rotation in the same memory. So its pages are as small, and its threads must wake as a server's
// do.
void BenchRope(Bench& bench, int64_t payload_mib) {
  const RopeCase test_case = RopeOf(payload_mib * kMebi);
  const SharedMemory x = SharedOf(bench.shared, test_case.q_bytes());
  const Memory here(test_case.q_bytes());
  FillNormal(test_case.dtype, here);
  std::memcpy(x.data(), here.data(), static_cast<size_t>(x.size()));
  const RopeCall shared = CallOf(test_case, x.data());
  const RopeCall inproc = CallOf(test_case, here.data());
  const RopeCall inproc_shared = CallOf(test_case, x.data());
  const SharedMemory none = SharedOf(bench.other, 4096);
  const RopeCall empty = CallOf(RopeOf(0), none.data());
  Rotate(bench.shared, shared);
  Rotate(bench.inproc, inproc);
  if (std::memcmp(x.data(), here.data(), static_cast<size_t>(x.size())) != 0) {
    Die("a rotation in shared memory has other bytes");
  }
  // Many calls in a row: the first ones after another candidate find other bytes in the caches.
  const auto calls = bench.arguments.quick ? 1 : std::clamp<int64_t>(1024 / payload_mib, 4, 64);
  const auto many = [calls](const auto& run) {
    return Candidate{[run, calls] {
                       for (int64_t i = 0; i < calls; ++i) run();
                     },
                     Cache::kAny};
  };
  const auto seconds =
      MedianSeconds(bench.arguments, {many([&] { Rotate(bench.shared, shared); }),
                                      many([&] { Rotate(bench.inproc, inproc); }), many([&] {
                                        Rotate(bench.other, empty);
                                        Rotate(bench.inproc, inproc_shared);
                                      })});
  const double run_bytes = 2.0 * static_cast<double>(x.size() * calls);
  const auto rate = [run_bytes](double s) { return run_bytes / s / 1e9; };
  Row row{.name = "shm_rope",
          .shape = absl::StrCat(payload_mib, " MiB in place"),
          .dtype = "FLOAT32",
          .threads = Cores(),
          .unit = "GB/s",
          .baseline = "in process"};
  const std::optional<double> target = payload_mib >= 16 ? std::optional(0.9) : std::nullopt;
  if (target.has_value()) row.most = seconds[1] / seconds[2];
  bench.report->Add(RateRow(std::move(row), rate(seconds[0]), rate(seconds[1]), target));
}

// No tokens: what naming shared memory costs.
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

// Compares a client that stages automatically with one that may not, and with one that sends the
// same bytes to a server that sends them back, all over Unix sockets. Below its threshold the
// client does not stage, so that the first two are alike there.
void BenchStaged(Bench& bench, int64_t payload) {
  const RopeCase test_case = RopeOf(payload);
  const Memory x(payload), other(payload);
  FillNormal(test_case.dtype, x);
  std::memcpy(other.data(), x.data(), static_cast<size_t>(payload));
  const RopeCall staged = CallOf(test_case, x.data());
  const RopeCall inline_call = CallOf(test_case, other.data());
  for (int i = 0; i < 3; ++i) {  // the first calls travel, until the server's socket is known
    Rotate(bench.staged, staged);
    Rotate(bench.shared, inline_call);
    usleep(100000);
  }
  if (std::memcmp(x.data(), other.data(), static_cast<size_t>(payload)) != 0) {
    Die("a staged rotation has other bytes");
  }
  const auto calls = static_cast<int>(std::clamp<int64_t>((16 << 20) / payload, 1, 64));
  const auto many = [calls](const Client& client, const RopeCall& call) {
    return Candidate{[&client, &call, calls] {
                       for (int i = 0; i < calls; ++i) Rotate(client, call);
                     },
                     Cache::kAny};
  };
  const grpc::ByteBuffer request = RopeMessage(test_case, x);
  const auto echo = [&] { bench.echo.Run(kRopeMethod, request, calls); };
  const auto seconds = MedianSeconds(
      bench.arguments,
      {many(bench.staged, staged), many(bench.shared, inline_call), Candidate{echo, Cache::kAny}});
  const double run_payloads = static_cast<double>(payload) * calls;
  const auto rate = [&](double s) { return run_payloads / s / 1e9; };
  const std::string size =
      payload < kMebi ? absl::StrCat(payload >> 10, " KiB") : absl::StrCat(payload >> 20, " MiB");
  Row row{.name = "shm_staged",
          .shape = absl::StrCat(size, " in place, Unix socket"),
          .dtype = "FLOAT32",
          .threads = Cores(),
          .unit = "GB/s",
          .baseline = "sent inline"};
  bench.report->Add(RateRow(row, rate(seconds[0]), rate(seconds[1])));
  row.baseline = "echo";
  const std::optional<double> target = payload >= 16 * kMebi ? std::optional(2.0) : std::nullopt;
  bench.report->Add(RateRow(std::move(row), rate(seconds[0]), rate(seconds[2]), target));
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc == 5 && mode == "--serve") return Serve(argv[2], argv[3], std::atoll(argv[4]));
  const Arguments arguments = ParseArguments(argc, argv);
  const TemporaryDirectory directory;
  const ChildServer server("phasor", directory.path());
  const TemporaryDirectory other_directory;
  const ChildServer other("phasor", other_directory.path());
  const ChildServer echo("echo", directory.path());
  const auto backend = MakeBackend({.threads = 1});
  Report report("bench_shm", arguments, backend.ok() ? (*backend)->target() : "?");
  Bench bench{arguments,
              &report,
              ConnectTo(server.unix_socket()),
              ConnectTo(other.unix_socket()),
              ConnectTo(server.unix_socket(), Cores(), int64_t{1} << 30),
              ConnectTo("inproc:"),
              RawClient(echo.unix_socket())};
  BenchEmpty(bench);
  for (const int64_t mib : {1, 16, 64, 256}) BenchRope(bench, mib);
  for (const int64_t kib : {64, 256, 1024, 4096, 16384, 65536, 262144}) {
    BenchStaged(bench, kib << 10);
  }
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
