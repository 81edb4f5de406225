// SPDX-License-Identifier: Apache-2.0
// `phasor bench` and the hidden `phasor echo-server`: their flags, the turns of load between Phasor
// and the echo server, and the progress display.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/cli/bench_report.h"
#include "client/cli/bench_task.h"
#include "client/cli/commands.h"
#include "client/cli/echo.h"
#include "client/cli/load.h"
#include "client/cli/spec_flags.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor::cli {
namespace {

// Bytes of an echoed message beside its tensors: everything else in a message of Phasor.
constexpr int64_t kHeaderBytes = 100;
// How long one side runs before the other one takes its turn.
constexpr absl::Duration kTurn = absl::Seconds(1);
// Time for connections and streams to open before anything is counted.
constexpr absl::Duration kWarmUp = absl::Milliseconds(200);

std::atomic<bool> stopped = false;

// The first SIGINT stops the load, and the report follows. A second one ends the program.
class StopOnInterrupt {
 public:
  StopOnInterrupt() {
    struct sigaction action = {};
    action.sa_handler = [](int) { stopped = true; };
    action.sa_flags = SA_RESETHAND;
    sigaction(SIGINT, &action, &old_);
  }
  ~StopOnInterrupt() { sigaction(SIGINT, &old_, nullptr); }
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

 private:
  struct sigaction old_;
};

// Shows the progress of a load on a terminal, once a second.
class Display {
 public:
  explicit Display(int64_t call_bytes) {
    if (isatty(STDERR_FILENO) == 0) return;
    thread_ = std::thread([this, call_bytes] { Show(call_bytes); });
  }
  ~Display() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;

  LoadProgress progress;

 private:
  void Show(int64_t call_bytes) {
    int64_t before = 0;
    for (int tick = 1; !done_; ++tick) {
      absl::SleepFor(absl::Milliseconds(100));
      if (tick % 10 != 0) continue;
      const int64_t calls = progress.succeeded;
      std::cerr << absl::StrFormat("\r%4d s  %9d calls/s  %9.1f MB/s  %d errors ", tick / 10,
                                   calls - before,
                                   static_cast<double>((calls - before) * call_bytes) / 1e6,
                                   progress.failed.load())
                << std::flush;
      before = calls;
    }
    std::cerr << "\r" << std::string(70, ' ') << "\r" << std::flush;
  }

  std::atomic<bool> done_ = false;
  std::thread thread_;
};

class BenchCommand final : public Command {
 public:
  explicit BenchCommand(CLI::App& parent)
      : Command(parent, "bench",
                "Measure how fast calls are answered: rotations if the spec is rotary, otherwise "
                "encodings") {
    AddSpecFlags(*app(), options_.spec);
    AddCount("--tokens", &options_.tokens, int64_t{1} << 40,
             "Tokens of a call, at positions 0, 1, ...");
    AddCount("--heads", &options_.heads, int64_t{1} << 30,
             "Heads of the tensor [tokens, heads, head_dim]");
    AddEnumFlag<Dtype>(
        *app(), "--dtype", {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16},
        +[](Dtype dtype) { return Name(dtype); }, [this](Dtype d) { options_.dtype = d; },
        "Type of the tensor or the rows; default float32");
    AddEnumFlag<BenchMode>(
        *app(), "--mode", {BenchMode::kUnary, BenchMode::kStream, BenchMode::kChunks}, &ModeName,
        [this](BenchMode m) { options_.mode = m; },
        "Default unary. stream: each worker sends one item at a time on a stream of its "
        "own. chunks: rotations of any size, sent 4 MiB at a time");
    AddCount("--concurrency", &concurrency_, 1024,
             "Calls under way at one time, each from its own thread");
    AddCount("--channels", &channels_, 64, "Connections; calls take turns on them");
    AddCount("--attempts", &attempts_, 10,
             "Attempts of a call, as the library repeats calls; by default a refusal is a result");
    app()
        ->add_option(
            "--rate", rate_,
            "Calls per second, equally spaced; default as many as possible. A call that must "
            "wait because --concurrency calls are under way is measured with its wait")
        ->check(IsAbove0)
        ->check(CLI::Range(0.001, 1e7));
    app()
        ->add_option("--duration", duration_s_, "Seconds to measure")
        ->capture_default_str()
        ->check(IsAbove0)
        ->check(CLI::Range(0.01, 86400.0));
    app()->add_flag("--shared", options_.shared,
                    "Put tensors in memory that the server maps, so that they are not sent");
    app()->add_flag("--vs-echo", vs_echo_,
                    "Compare with a bare gRPC server on this machine that moves as many bytes and "
                    "computes nothing; the two take turns of a second");
  }

  absl::Status Run(std::ostream& out) override {
    if (vs_echo_ && common_.server.empty()) {
      return Invalid("--vs-echo: there is no wire in process; must be beside --server");
    }
    PHASOR_ASSIGN_OR_RETURN(const Client client, ConnectOnce());
    PHASOR_ASSIGN_OR_RETURN(const BenchTask task, MakeBenchTask(client, options_));
    if (vs_echo_ && SizesOf(task).reply_bytes > kMaxEchoBytes) {
      return Invalid("--vs-echo: ", task.tensor_bytes, " bytes of a tensor; must be at most ",
                     kMaxEchoBytes - kHeaderBytes, " to fit a message of the bare server");
    }
    PHASOR_RETURN_IF_ERROR(CheckAnswer(client, task));
    const int workers = static_cast<int>(concurrency_);
    PHASOR_ASSIGN_OR_RETURN(const auto phasor, BenchOperations(client, task, workers));
    std::unique_ptr<EchoServer> echo_server;
    std::vector<Operation> echo;
    if (vs_echo_) {
      PHASOR_ASSIGN_OR_RETURN(
          echo_server,
          EchoServer::Start("/proc/self/exe", absl::StartsWith(common_.server, "unix:")));
      echo = EchoOperations(echo_server->address(), SizesOf(task), workers,
                            static_cast<int>(channels_), absl::Seconds(common_.timeout_s));
    }
    BenchReport report{.task = task,
                       .server = common_.server.empty() ? "inproc:" : common_.server,
                       .concurrency = workers,
                       .rate = rate_};
    RunInTurn(phasor, echo, &report);
    const nlohmann::ordered_json json = ToJson(report);
    out << (common_.json ? json.dump(2) + "\n" : FormatBenchReport(json));
    return WhetherAny(report.phasor);
  }

 private:
  void AddCount(const char* flag, int64_t* value, int64_t most, const char* help) {
    app()
        ->add_option(flag, *value, help)
        ->capture_default_str()
        ->check(CLI::Range(int64_t{1}, most));
  }

  // A client that does not stage, because only --shared may use shared memory.
  absl::StatusOr<Client> ConnectOnce() const {
    ClientOptions options = common_.Options();
    options.max_attempts = static_cast<int>(attempts_);
    options.staging_bytes = 0;
    options.channels = static_cast<int>(channels_);
    return Connect(options);
  }

  static EchoSizes SizesOf(const BenchTask& task) {
    return {.request_bytes = kHeaderBytes + (task.rotary ? task.tensor_bytes : 0),
            .reply_bytes = kHeaderBytes + task.tensor_bytes};
  }

  // Runs each side for the whole duration, in turns.
  void RunInTurn(const std::vector<Operation>& phasor, const std::vector<Operation>& echo,
                 BenchReport* report) const {
    const StopOnInterrupt stop_on_interrupt;
    const absl::Duration duration = absl::Seconds(duration_s_);
    LoadProgress unseen;
    RunLoad({kWarmUp, rate_}, phasor, stopped, &unseen);
    if (!echo.empty()) {
      RunLoad({kWarmUp, rate_}, echo, stopped, &unseen);
      report->echo.emplace();
    }
    Display display(report->task.call_bytes());
    const absl::Duration turn = echo.empty() ? duration : kTurn;
    for (absl::Duration left = duration; left > absl::ZeroDuration() && !stopped; left -= turn) {
      const LoadOptions options = {std::min(left, turn), rate_};
      report->phasor.Append(RunLoad(options, phasor, stopped, &display.progress));
      if (echo.empty() || stopped) continue;
      report->echo->Append(RunLoad(options, echo, stopped, &unseen));
    }
  }

  // The first error, if no operation succeeded.
  static absl::Status WhetherAny(const LoadResult& result) {
    if (result.succeeded > 0 || result.errors.empty()) return absl::OkStatus();
    const auto& [code, errors] = *result.errors.begin();
    return absl::Status(code, errors.message);
  }

  BenchOptions options_;
  int64_t concurrency_ = 1;
  int64_t channels_ = 1;
  int64_t attempts_ = 1;
  double rate_ = 0;
  double duration_s_ = 10;
  bool vs_echo_ = false;
};

class EchoServerCommand final : public Command {
 public:
  explicit EchoServerCommand(CLI::App& parent)
      : Command(parent, "echo-server", "What bench --vs-echo starts") {
    app()->group("");  // not listed
    app()->add_option("--unix", unix_path_, "Socket to serve on instead of a port");
  }

  absl::Status Run(std::ostream&) override { return ServeEcho(unix_path_); }

 private:
  std::string unix_path_;
};

}  // namespace

void AddBenchCommands(CLI::App& app, Commands* commands) {
  commands->push_back(std::make_unique<BenchCommand>(app));
  commands->push_back(std::make_unique<EchoServerCommand>(app));
}

}  // namespace phasor::cli
