// SPDX-License-Identifier: Apache-2.0
// bench_rpc: compares calls to Phasor with calls to servers that echo, or copy and echo, and to one
// written with generated messages. Also measures peak memory and the time to start. Every server is
// a process.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/harness.h"
#include "bench/server/messages.h"
#include "bench/server/raw_client.h"
#include "bench/server/servers.h"
#include "kernels/backends.h"

namespace phasor::bench {
namespace {

constexpr int64_t kKibi = 1 << 10;
constexpr int64_t kMebi = 1 << 20;
constexpr int64_t kGibi = 1 << 30;
const EncodeCase kSmallEncode{"timestep-sin-cos", 1, 16, Dtype::kFloat32, 500};

struct Bench {
  const Arguments arguments;
  Report* report;
  std::string directory;
};

// A server and a client of it.
struct Server {
  const ChildServer& process;
  RawClient client;
};

// The servers, all over one transport.
struct Clients {
  std::string transport;
  Server phasor, echo, busy_echo, copying, protobuf;
};

// One measurement: the bytes of the tensor to rotate, and the calls at a time.
struct Load {
  int64_t payload;
  int in_flight;
};

// The loads that have targets, and the ends of the scale; with --all, all loads.
std::vector<Load> LoadsOf(const Arguments& arguments) {
  if (!arguments.all) {
    return {{64 * kKibi, 1}, {64 * kKibi, 16}, {64 * kKibi, 64}, {kMebi, 1},
            {kMebi, 4},      {kMebi, 64},      {16 * kMebi, 1},  {16 * kMebi, 4},
            {64 * kMebi, 1}, {64 * kMebi, 2},  {256 * kMebi, 1}, {kGibi, 1}};
  }
  std::vector<Load> loads;
  for (int64_t payload = 16 * kKibi; payload <= kGibi; payload *= 4) {
    for (const int in_flight : {1, 4, 16, 64}) {
      // Memory holds every payload three times.
      if (payload * in_flight <= kGibi) loads.push_back({payload, in_flight});
    }
  }
  return loads;
}

std::string SizeText(int64_t bytes) {
  if (bytes < kMebi) return absl::StrCat(bytes / kKibi, " KiB");
  if (bytes < kGibi) return absl::StrCat(bytes / kMebi, " MiB");
  return absl::StrCat(bytes / kGibi, " GiB");
}

// The least ratios of a rotation: to both echos, and to the handler of generated messages.
struct Targets {
  std::optional<double> echo, protobuf;
};
Targets TargetsOf(int64_t payload) {
  for (const int64_t mib : {1, 16, 64, 256}) {
    if (payload == mib * kMebi) return {0.9, mib < 16 ? 1.6 : 2.0};
  }
  return {};
}

// Threads is the number of cores, because servers use all of them.
Row RpcRow(const std::string& name, const std::string& shape) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return {.name = name, .shape = shape, .dtype = "FLOAT32", .threads = cores};
}

std::string LoadShape(const std::string& size, int in_flight, const Clients& clients) {
  return absl::StrCat(size, ", ", in_flight, " in flight, ", clients.transport);
}

void BenchSmallEncode(Bench& bench, Clients& clients, int in_flight) {
  const int calls = bench.arguments.quick ? 200 : 3000;
  const grpc::ByteBuffer request = EncodeMessage(kSmallEncode);
  CheckEncodeAnswer(kSmallEncode, clients.phasor.client.Run(kEncodeMethod, request));
  // The processor time of the server for one call, of each run.
  std::vector<double> phasor_us, echo_us, busy_echo_us;
  const auto load = [&](Server& server, std::vector<double>* cpu_us) {
    return Candidate{[&, calls, cpu_us] {
                       const double before = server.process.CpuSeconds();
                       server.client.Run(kEncodeMethod, request, calls, in_flight);
                       cpu_us->push_back((server.process.CpuSeconds() - before) / calls * 1e6);
                     },
                     Cache::kAny};
  };
  Arguments arguments = bench.arguments;
  arguments.full_rounds = 41;
  arguments.row_seconds = 30;
  const auto seconds =
      RoundSeconds(arguments, {load(clients.phasor, &phasor_us), load(clients.echo, &echo_us),
                               load(clients.busy_echo, &busy_echo_us)});
  const bool has_target = in_flight == 16;

  Row row = RpcRow("rpc_encode", LoadShape("64 B", in_flight, clients));
  row.unit = "calls/s";
  row.baseline = "echo";
  row = RateRow(row, calls / Median(seconds[0]), calls / Median(seconds[1]));
  row.ratio = MedianRatio(seconds[1], seconds[0]);
  row.target = has_target ? std::optional(0.85) : std::nullopt;
  row.most = MedianRatio(seconds[1], seconds[2]);
  bench.report->Add(row);
  row.most = std::nullopt;
  row.baseline = "busy echo";
  row = RateRow(row, calls / Median(seconds[0]), calls / Median(seconds[2]));
  row.ratio = MedianRatio(seconds[2], seconds[0]);
  bench.report->Add(row);
  row.name = "rpc_encode_cpu";
  row.unit = "us";
  row.baseline = "echo";
  bench.report->Add(CostRow(row, Median(phasor_us), Median(echo_us)));
  row.name = "rpc_encode_ours";
  row.baseline = "limit";
  const double ours_us = MedianDifference(phasor_us, echo_us);
  // Noise may make the echo slower.
  bench.report->Add(
      CostRow(row, std::max(ours_us, 0.01), 3, has_target ? std::optional(1.0) : std::nullopt));
}

void BenchRope(Bench& bench, Clients& clients, const Load& of) {
  const auto [payload, in_flight] = of;
  const RopeCase test_case = RopeOf(payload);
  const Memory x(payload);
  FillNormal(test_case.dtype, x);
  const grpc::ByteBuffer request = RopeMessage(test_case, x);
  const bool sample = bench.arguments.quick || payload >= 64 * kMebi;
  for (Server* server : {&clients.phasor, &clients.protobuf}) {
    CheckRopeAnswer(test_case, x, server->client.Run(kRopeMethod, request), sample);
  }

  const int64_t run_bytes = bench.arguments.quick ? payload : 64 * kMebi;
  const int calls = static_cast<int>(std::max<int64_t>(run_bytes / payload, in_flight));
  const auto load = [&, in_flight = in_flight](Server& server) {
    return Candidate{
        [&, calls, in_flight] { server.client.Run(kRopeMethod, request, calls, in_flight); },
        Cache::kAny};
  };
  const auto seconds = MedianSeconds(
      bench.arguments,
      {load(clients.phasor), load(clients.echo), load(clients.copying), load(clients.protobuf)});
  const double run_payloads = static_cast<double>(payload) * calls;
  const auto rate = [&](double s) { return run_payloads / s / 1e9; };

  const Targets targets = TargetsOf(payload);
  Row row = RpcRow("rpc_rope", LoadShape(SizeText(payload), in_flight, clients));
  row.unit = "GB/s";
  const auto add = [&](std::string baseline, size_t other, std::optional<double> target,
                       std::optional<size_t> floor) {
    Row against = RateRow(row, rate(seconds[0]), rate(seconds[other]), target);
    against.baseline = std::move(baseline);
    if (floor.has_value()) against.most = seconds[other] / seconds[*floor];
    bench.report->Add(std::move(against));
  };
  add("echo", 1, targets.echo, 2);
  add("copying echo", 2, targets.echo, {});
  add("protobuf handler", 3, targets.protobuf, 2);
}

void BenchCalls(Bench& bench) {
  ChildServer phasor("phasor", bench.directory);
  const int64_t reply_bytes = static_cast<int64_t>(
      RawClient(phasor.tcp()).Run(kEncodeMethod, EncodeMessage(kSmallEncode)).Length());
  ChildServer echo("echo", bench.directory, reply_bytes);
  ChildServer busy_echo("busy_echo", bench.directory, reply_bytes);
  ChildServer copying("copy", bench.directory);
  ChildServer protobuf("protobuf", bench.directory);
  const auto over_tcp = [](const ChildServer& s) { return Server{s, RawClient(s.tcp())}; };
  const auto local_to = [](const ChildServer& s) { return Server{s, RawClient(s.unix_socket())}; };
  Clients tcp{"TCP",
              over_tcp(phasor),
              over_tcp(echo),
              over_tcp(busy_echo),
              over_tcp(copying),
              over_tcp(protobuf)};
  Clients local{"Unix socket",       local_to(phasor),  local_to(echo),
                local_to(busy_echo), local_to(copying), local_to(protobuf)};
  for (Clients* clients : {&tcp, &local}) {
    for (const int in_flight : {1, 16, 64}) BenchSmallEncode(bench, *clients, in_flight);
  }
  for (Clients* clients : {&tcp, &local}) {
    for (const Load& load : LoadsOf(bench.arguments)) BenchRope(bench, *clients, load);
  }
}

// Milliseconds of calls that come one by one, after pauses of more than a second.
std::vector<double> IdleCallMs(RawClient& client, int calls, unsigned seed) {
  std::minstd_rand random(seed);
  std::uniform_int_distribution<int> pause_ms(1050, 2250);
  const grpc::ByteBuffer request = EncodeMessage(kSmallEncode);
  std::vector<double> passed;
  for (int i = 0; i < calls; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms(random)));
    const auto start = std::chrono::steady_clock::now();
    client.Run(kEncodeMethod, request);
    passed.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  }
  return passed;
}

// The 99th percentile of such calls to servers of one kind, each of which has one client.
double IdleP99Ms(Bench& bench, const std::string& kind) {
  const int servers = bench.arguments.quick ? 1 : 16, calls = bench.arguments.quick ? 1 : 20;
  std::vector<std::vector<double>> of_server(static_cast<size_t>(servers));
  std::vector<std::thread> clients;
  for (int i = 0; i < servers; ++i) {
    clients.emplace_back([&, i] {
      const std::string directory = absl::StrCat(bench.directory, "/", kind, i);
      std::filesystem::create_directory(directory);
      const ChildServer server(kind, directory, 64);
      RawClient client(server.tcp());
      of_server[static_cast<size_t>(i)] = IdleCallMs(client, calls, static_cast<unsigned>(i + 1));
    });
  }
  for (std::thread& client : clients) client.join();
  std::vector<double> all;
  for (const auto& ms : of_server) all.insert(all.end(), ms.begin(), ms.end());
  std::sort(all.begin(), all.end());
  return all[all.size() * 99 / 100];
}

void BenchIdle(Bench& bench) {
  Row row = RpcRow("rpc_idle", "64 B after 1 to 2 s without calls, 99th percentile, TCP");
  row.unit = "ms";
  row.baseline = "echo";
  bench.report->Add(CostRow(row, IdleP99Ms(bench, "phasor"), IdleP99Ms(bench, "echo"), 1.0));
}

// The largest resident size of a fresh server after a few calls in sequence, in payloads.
double PeakPayloads(Bench& bench, const std::string& kind, int64_t payload) {
  ChildServer server(kind, bench.directory);
  RawClient client(server.tcp());
  const RopeCase test_case = RopeOf(payload);
  const Memory x(payload);
  FillNormal(test_case.dtype, x);
  CheckRopeAnswer(test_case, x, client.Run(kRopeMethod, RopeMessage(test_case, x), 3), true);
  return static_cast<double>(server.PeakBytes()) / static_cast<double>(payload);
}

void BenchMemory(Bench& bench) {
  constexpr int64_t kPayloadMib = 256;
  const double phasor = PeakPayloads(bench, "phasor", kPayloadMib * kMebi);
  const double protobuf = PeakPayloads(bench, "protobuf", kPayloadMib * kMebi);
  Row row = RpcRow("rpc_memory", absl::StrCat(kPayloadMib, " MiB, peak resident, TCP"));
  row.unit = "payload";
  row.baseline = "limit";
  bench.report->Add(CostRow(row, phasor, 2.4, 1.0));
  row.baseline = "protobuf handler";
  bench.report->Add(CostRow(row, phasor, protobuf));
}

// Waits until something listens at the path.
void WaitForSocket(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  for (int attempt = 0; attempt < 100000; ++attempt) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int error = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    close(fd);
    if (error == 0) return;
    usleep(100);
  }
  Die("phasor-server does not listen");
}

// From starting the shipped binary until its health service answers SERVING.
double SecondsToServing(const std::string& path) {
  constexpr std::string_view kServing("\x08\x01", 2);
  std::filesystem::remove(path);
  const auto start = std::chrono::steady_clock::now();
  Process server(
      {PHASOR_SERVER_BINARY, "--listen", absl::StrCat("unix:", path), "--log-level", "error"});
  WaitForSocket(path);
  const grpc::Slice nothing;  // the empty message
  RawClient client(absl::StrCat("unix:", path));
  const grpc::ByteBuffer answer =
      client.Run("/grpc.health.v1.Health/Check", grpc::ByteBuffer(&nothing, 1));
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  grpc::Slice status;
  if (!answer.TrySingleSlice(&status).ok() || status.size() != kServing.size() ||
      std::memcmp(status.begin(), kServing.data(), kServing.size()) != 0) {
    Die("phasor-server does not serve");
  }
  return passed.count();
}

void BenchStart(Bench& bench) {
  const std::string path = bench.directory + "/start.sock";
  std::vector<double> seconds;
  for (int i = 0; i < bench.arguments.rounds(); ++i) seconds.push_back(SecondsToServing(path));
  Row row = RpcRow("start", "to SERVING, Unix socket");
  row.dtype = "";
  row.unit = "ms";
  row.baseline = "limit";
  bench.report->Add(CostRow(std::move(row), Median(std::move(seconds)) * 1e3, 150, 1.0));
}

std::string Isa() {
  const auto backend = MakeBackend({.threads = 1});
  return backend.ok() ? (*backend)->target() : "?";
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc == 5 && mode == "--serve") return Serve(argv[2], argv[3], std::atoll(argv[4]));
  Arguments arguments = ParseArguments(argc, argv);
  arguments.row_seconds = 8;  // about eleven minutes in all
  const TemporaryDirectory directory;
  Report report("bench_rpc", arguments, Isa());
  Bench bench{arguments, &report, directory.path()};
  BenchStart(bench);
  BenchCalls(bench);
  BenchMemory(bench);
  BenchIdle(bench);
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
