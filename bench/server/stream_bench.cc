// SPDX-License-Identifier: Apache-2.0
// bench_stream: compares rotations as items of one stream with the same rotations as calls, a long
// tensor in chunks with one call, and tiny items of a stream and of batches with calls. The server
// is another process, reached over a Unix socket.
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness.h"
#include "bench/server/client_calls.h"
#include "bench/server/messages.h"
#include "bench/server/raw_client.h"
#include "bench/server/servers.h"
#include "kernels/backends.h"

namespace phasor::bench {
namespace {

constexpr int64_t kKibi = 1 << 10;
constexpr int kItems = 64;  // of a run

struct Bench {
  const Arguments arguments;
  Report* report;
  Client server;
  Client here;
};

// Rotates each of `calls` once, as items of `stream`, of which at most `in_flight` are not
// answered.
void RotateAll(RopeStream& stream, const std::vector<RopeCall>& calls, size_t in_flight) {
  const auto read = [&] {
    const auto answer = stream.Read();
    if (!answer.has_value() || !answer->result.ok()) Die("a stream's item failed");
  };
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i >= in_flight) read();
    if (!stream.Write(static_cast<int64_t>(i), calls[i]).ok()) Die("a stream ended");
  }
  for (size_t i = 0; i < std::min(in_flight, calls.size()); ++i) read();
}

// Dies unless `memory` holds what this process computes from the same bytes.
void Check(const Bench& bench, const RopeCase& test_case, const Memory& rotated) {
  const Memory here(test_case.q_bytes());
  FillNormal(test_case.dtype, here);
  Rotate(bench.here, CallOf(test_case, here.data()));
  if (std::memcmp(here.data(), rotated.data(), static_cast<size_t>(here.size())) != 0) {
    Die("a rotation has other bytes");
  }
}

Row RowOf(std::string name, std::string shape, std::string baseline) {
  return {.name = std::move(name),
          .shape = std::move(shape),
          .dtype = "FLOAT32",
          .threads = Cores(),
          .unit = "GB/s",
          .baseline = std::move(baseline)};
}

void BenchItems(Bench& bench, int64_t kib, size_t in_flight) {
  const RopeCase test_case = RopeOf(kib * kKibi);
  const Memory x(test_case.q_bytes());
  FillNormal(test_case.dtype, x);
  const std::vector<RopeCall> calls(kItems, CallOf(test_case, x.data()));
  const auto stream = bench.server.StreamApplyRoPE();
  RotateAll(*stream, {calls[0]}, 1);
  Check(bench, test_case, x);
  const auto one_by_one = [&] {
    for (const RopeCall& call : calls) Rotate(bench.server, call);
  };
  const auto seconds = MedianSeconds(
      bench.arguments, {Candidate{[&] { RotateAll(*stream, calls, in_flight); }, Cache::kAny},
                        Candidate{one_by_one, Cache::kAny}});
  if (const absl::Status end = stream->Finish(); !end.ok()) Die(end.ToString());
  const auto rate = [&](double s) { return static_cast<double>(x.size()) * kItems / s / 1e9; };
  bench.report->Add(
      RateRow(RowOf("stream_rope", absl::StrCat(kib, " KiB items, ", in_flight, " in flight"),
                    "calls one by one"),
              rate(seconds[0]), rate(seconds[1]), 1));
}

void BenchChunks(Bench& bench, int64_t mib) {
  const RopeCase test_case = RopeOf(mib * kKibi * kKibi);
  const Memory x(test_case.q_bytes());
  FillNormal(test_case.dtype, x);
  const RopeCall call = CallOf(test_case, x.data());
  const auto chunked = [&] {
    if (const auto info = bench.server.ApplyRoPEInChunks(call); !info.ok()) {
      Die(info.status().ToString());
    }
  };
  chunked();
  Check(bench, test_case, x);
  const auto seconds =
      MedianSeconds(bench.arguments, {Candidate{chunked, Cache::kAny},
                                      Candidate{[&] { Rotate(bench.server, call); }, Cache::kAny}});
  const auto rate = [&](double s) { return static_cast<double>(x.size()) / s / 1e9; };
  bench.report->Add(
      RateRow(RowOf("chunked_rope", absl::StrCat(mib, " MiB in chunks of 4 MiB"), "one call"),
              rate(seconds[0]), rate(seconds[1]), 1));
}

// 64 bytes of Encode at a time: as calls, as messages of a stream, and in batches. An echo takes
// the same calls and messages on as many threads: what gRPC lets a stream gain is the floor of what
// Phasor's gains. To be called before this process has a Client: gRPC's threads for its callbacks
// would take events of the load and hand them on, which halves all of these rates.
void BenchTinyItems(const Arguments& arguments, const std::string& directory,
                    const ChildServer& server, Report* report) {
  const EncodeCase test_case{"timestep-sin-cos", 1, 16, Dtype::kFloat32, 500};
  constexpr int kInFlight = 64, kBatch = 64;
  const int items = arguments.quick ? 640 : 12800;
  const grpc::ByteBuffer call = EncodeMessage(test_case), message = StreamEncodeMessage(test_case),
                         batch = BatchEncodeMessage(test_case, kBatch);
  RawClient client(server.unix_socket());
  CheckEncodeAnswer(test_case, client.Run(kEncodeMethod, call));
  const grpc::ByteBuffer answer = client.RunStream(kStreamEncodeMethod, message, 1, 1);
  CheckStreamEncodeAnswer(test_case, answer);
  for (int time = 0; time < 2; ++time) {  // the server knows the items the second time
    CheckBatchEncodeAnswer(test_case, kBatch, client.Run(kBatchEncodeMethod, batch));
  }
  const ChildServer echo_server("few_threads_echo", directory,
                                static_cast<int64_t>(answer.Length()));
  RawClient echo(echo_server.unix_socket());
  const auto calls = [&](RawClient& to) {
    return Candidate{[&] { to.Run(kEncodeMethod, call, items, kInFlight); }, Cache::kAny};
  };
  const auto streams = [&](RawClient& to) {
    return Candidate{[&] { to.RunStream(kStreamEncodeMethod, message, items, kInFlight); },
                     Cache::kAny};
  };
  const auto batches = [&] { client.Run(kBatchEncodeMethod, batch, items / kBatch, 4); };
  const auto seconds =
      RoundSeconds(arguments, {calls(client), streams(client), Candidate{batches, Cache::kAny},
                               calls(echo), streams(echo)});
  const auto add = [&](std::string name, std::string shape, size_t subject, std::string baseline,
                       size_t of, std::optional<double> target, std::optional<double> most = {}) {
    Row row = RowOf(std::move(name), std::move(shape), std::move(baseline));
    row.unit = "items/s";
    row = RateRow(row, items / Median(seconds[subject]), items / Median(seconds[of]), target);
    row.ratio = MedianRatio(seconds[of], seconds[subject]);
    row.most = most;
    report->Add(row);
  };
  const std::string stream_shape = "64 B items, 64 in flight";
  add("stream_encode", stream_shape, 1, "calls, 64 in flight", 0, 3,
      MedianRatio(seconds[3], seconds[4]));
  add("stream_encode", stream_shape, 1, "echo's stream", 4, {});
  add("stream_echo", stream_shape, 4, "echo's calls, 64 in flight", 3, {});
  add("batch_encode", "64 items of 64 B, 4 batches in flight", 2, "calls, 64 in flight", 0, 15);
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc == 5 && mode == "--serve") return Serve(argv[2], argv[3], std::atoll(argv[4]));
  const Arguments arguments = ParseArguments(argc, argv);
  const TemporaryDirectory directory;
  const ChildServer server("phasor", directory.path());
  const auto backend = MakeBackend({.threads = 1});
  Report report("bench_stream", arguments, backend.ok() ? (*backend)->target() : "?");
  BenchTinyItems(arguments, directory.path(), server, &report);
  Bench bench{arguments, &report, ConnectTo(server.unix_socket()), ConnectTo("inproc:")};
  for (const int64_t kib : {16, 256, 1024, 4096}) BenchItems(bench, kib, 4);
  BenchItems(bench, 16, 32);
  for (const int64_t mib : {64, 256}) BenchChunks(bench, mib);
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
