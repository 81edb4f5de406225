// SPDX-License-Identifier: Apache-2.0
// bench_cores: calls and rotations on 1, 2, 4, ... cores, beside an echo and memmove on as many.
// The clients have as many cores as the server, and other ones if the machine has enough.
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "bench/harness.h"
#include "bench/kernels/copier.h"
#include "bench/kernels/jobs.h"
#include "bench/server/messages.h"
#include "bench/server/raw_client.h"
#include "bench/server/servers.h"
#include "kernels/backends.h"

namespace phasor::bench {
namespace {

const EncodeCase kSmallEncode{"timestep-sin-cos", 1, 16, Dtype::kFloat32, 500};
constexpr int64_t kRopeBytes = 1 << 20;

struct Bench {
  const Arguments arguments;
  Report* report;
};

// Whether it is the second thread of a core, as far as Linux knows.
bool IsSecondThread(int core) {
  std::ifstream siblings(
      absl::StrCat("/sys/devices/system/cpu/cpu", core, "/topology/thread_siblings_list"));
  int first = core;
  siblings >> first;
  return first != core;
}

// The processors that this process may use: one of each core, then second threads of cores.
std::vector<int> AllowedCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) Die("no set of cores");
  std::vector<int> cores;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  }
  std::stable_partition(cores.begin(), cores.end(), [](int i) { return !IsSecondThread(i); });
  return cores;
}

// Lets this thread, and the threads and processes that it starts, run on `cores` only.
void RunOn(absl::Span<const int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) Die("a set of cores is refused");
}

// Which cores a server and its clients use.
struct Split {
  absl::Span<const int> server, clients;

  Split(absl::Span<const int> cores, size_t count)
      : server(cores.first(count)),
        clients(2 * count <= cores.size() ? cores.subspan(count, count) : server) {}
  bool apart() const { return server.data() != clients.data(); }
  std::string text() const {
    return absl::StrCat(server.size(), server.size() == 1 ? " core" : " cores",
                        apart() ? "" : ", shared with the clients");
  }
};

// A server on its cores, and for each core of the clients a connection and a thread.
class Loaded {
 public:
  Loaded(const std::string& kind, const std::string& directory, const Split& split,
         int64_t reply_bytes)
      : split_(split), server_(Start(kind, directory, split, reply_bytes)) {
    Connect(server_->tcp(), &tcp_);
    Connect(server_->unix_socket(), &local_);
  }

  // Calls `load` with each connection of the transport at once.
  template <typename Load>
  void Run(bool local, const Load& load) {
    std::vector<std::thread> threads;
    for (const auto& client : local ? local_ : tcp_) {
      threads.emplace_back([&] { load(*client); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  RawClient& first() { return *tcp_[0]; }

 private:
  using Clients = std::vector<std::unique_ptr<RawClient>>;

  static std::unique_ptr<ChildServer> Start(const std::string& kind, const std::string& directory,
                                            const Split& split, int64_t reply_bytes) {
    RunOn(split.server);
    auto server = std::make_unique<ChildServer>(kind, directory, reply_bytes);
    RunOn(split.clients);
    return server;
  }
  void Connect(const std::string& address, Clients* clients) {
    for (size_t i = 0; i < split_.clients.size(); ++i) {
      clients->push_back(std::make_unique<RawClient>(address));
    }
  }

  const Split split_;
  const std::unique_ptr<ChildServer> server_;
  Clients tcp_, local_;
};

// Work that each client does at once, and how much of it there is.
struct Work {
  std::string name, what, unit;
  double units;  // of one client
  std::function<void(RawClient&)> run;
  bool copies = false;  // its floor is the copying echo, not the busy one
  std::optional<double> target;
};

std::vector<Work> WorksOf(const Arguments& arguments, const Memory& x) {
  constexpr int kInFlight = 16;
  const int calls = arguments.quick ? 64 : 4000;
  const int items = arguments.quick ? 64 : 16000;
  const int rotations = arguments.quick ? 4 : 64;
  const auto encode = EncodeMessage(kSmallEncode);
  const auto item = StreamEncodeMessage(kSmallEncode);
  const auto rope = RopeMessage(RopeOf(kRopeBytes), x);
  return {{"cores_encode", "64 B", "calls/s", static_cast<double>(calls),
           [=](RawClient& c) { c.Run(kEncodeMethod, encode, calls, kInFlight); }, false, 0.85},
          {"cores_stream", "items of 64 B", "items/s", static_cast<double>(items),
           [=](RawClient& c) { c.RunStream(kStreamEncodeMethod, item, items, 4 * kInFlight); }},
          {"cores_rope", "1 MiB", "GB/s", static_cast<double>(rotations * kRopeBytes) / 1e9,
           [=](RawClient& c) { c.Run(kRopeMethod, rope, rotations, 4); }, true, 0.9}};
}

void BenchCalls(Bench& bench, const Split& split) {
  const TemporaryDirectory directory;
  Loaded phasor("phasor", directory.path(), split, 0);
  const grpc::ByteBuffer answer = phasor.first().Run(kEncodeMethod, EncodeMessage(kSmallEncode));
  CheckEncodeAnswer(kSmallEncode, answer);
  const auto reply_bytes = static_cast<int64_t>(answer.Length());
  Loaded echo("echo", directory.path(), split, reply_bytes);
  Loaded busy_echo("busy_echo", directory.path(), split, reply_bytes);
  Loaded copying("copy", directory.path(), split, 0);
  const Memory x(kRopeBytes);
  FillNormal(Dtype::kFloat32, x);
  const grpc::ByteBuffer rotation = RopeMessage(RopeOf(kRopeBytes), x);
  CheckRopeAnswer(RopeOf(kRopeBytes), x, phasor.first().Run(kRopeMethod, rotation), false);
  for (const bool local : {false, true}) {
    for (const Work& work : WorksOf(bench.arguments, x)) {
      const auto load = [&](Loaded& server) {
        return Candidate{[&] { server.Run(local, work.run); }, Cache::kAny};
      };
      Loaded& floor = work.copies ? copying : busy_echo;
      const auto seconds = RoundSeconds(bench.arguments, {load(phasor), load(echo), load(floor)});
      const double units = work.units * static_cast<double>(split.clients.size());
      Row row{
          .name = work.name,
          .shape = absl::StrCat(work.what, ", ", split.text(), local ? ", Unix socket" : ", TCP"),
          .dtype = "FLOAT32",
          .threads = static_cast<int>(split.server.size()),
          .unit = work.unit,
          .baseline = "echo"};
      row = RateRow(std::move(row), units / Median(seconds[0]), units / Median(seconds[1]),
                    work.target);
      row.ratio = MedianRatio(seconds[1], seconds[0]);
      row.most = MedianRatio(seconds[1], seconds[2]);
      bench.report->Add(std::move(row));
    }
  }
}

// What one core's cache holds, and more than all caches hold.
constexpr int64_t kWarmTokens = 32, kDramTokens = 32768;

// Rotations in place by the CPU backend with a thread for each core.
void BenchKernel(Bench& bench, const Split& split, Dtype dtype, int64_t tokens) {
  const auto threads = static_cast<int>(split.server.size());
  RunOn(split.server);
  const auto backend = MakeBackend({.name = "cpu", .threads = threads});
  if (!backend.ok()) Die(backend.status().ToString());
  RopeCase test_case{.dtype = dtype};
  const bool warm = tokens == kWarmTokens;
  test_case.positions.resize(bench.arguments.quick && !warm ? 512 : tokens);
  std::iota(test_case.positions.begin(), test_case.positions.end(), 0);
  const Memory x(test_case.bytes()), y(test_case.bytes());
  FillNormal(dtype, x);
  const RopeRun rope(test_case);
  rope.Run(**backend, x.data(), y.data());
  CheckRope(test_case, x.data(), y.data(), true);
  Copier copier(threads);
  const auto seconds = MedianSeconds(
      bench.arguments, {Candidate{[&] { rope.Run(**backend, y.data(), y.data()); }},
                        Candidate{[&] { copier.Copy(x.data(), y.data(), x.size()); }}});
  const double moved = 2.0 * static_cast<double>(x.size());
  Row row{.name = "cores_kernel",
          .shape = absl::StrCat("T=", test_case.tokens(), " 32q+8k x128 in place, ", threads,
                                threads == 1 ? " core" : " cores"),
          .dtype = std::string(Name(dtype)),
          .threads = threads,
          .cache = warm ? "warm" : "DRAM",
          .unit = "GB/s",
          .baseline = "memmove"};
  bench.report->Add(RateRow(std::move(row), moved / seconds[0] / 1e9, moved / seconds[1] / 1e9,
                            warm ? std::nullopt : std::optional(1.0)));
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc == 5 && mode == "--serve") return Serve(argv[2], argv[3], std::atoll(argv[4]));
  Arguments arguments = ParseArguments(argc, argv);
  arguments.row_seconds = 4;
  const std::vector<int> cores = AllowedCores();
  const auto backend = MakeBackend({.threads = 1});
  Report report("bench_cores", arguments, backend.ok() ? (*backend)->target() : "?");
  Bench bench{arguments, &report};
  for (size_t count = 1; count <= cores.size(); count *= 2) {
    const Split split(cores, count);
    BenchCalls(bench, split);
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
      if (count == 1) BenchKernel(bench, split, dtype, kWarmTokens);
      BenchKernel(bench, split, dtype, kDramTokens);
    }
  }
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
