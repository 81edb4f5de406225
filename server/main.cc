// SPDX-License-Identifier: Apache-2.0
// phasor-server: reads options, handles signals, and runs a Server.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/cores.h"
#include "server/base/log.h"
#include "server/base/process.h"
#include "server/config/server_command.h"
#include "server/grpc/grpc_server.h"
#include "server/net/systemd.h"
#include "server/part_options.h"
#include "server/server.h"
#include "server/trace/trace_options.h"

namespace phasor {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitBadOptions = 2;
constexpr unsigned kSpareSeconds = 4;  // less than Kubernetes is told to spare
constexpr int kExitRestart = 75;  // EX_TEMPFAIL: the GPU was lost; a new process may get it back

std::optional<std::string> Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int Complain(const absl::Status& status, int exit_status) {
  std::fprintf(stderr, "phasor-server: %s\n", std::string(status.message()).c_str());
  return exit_status;
}

std::vector<std::string> EnvironmentNames() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    names.push_back(text.substr(0, text.find('=')));
  }
  return names;
}

sigset_t SetOf(std::initializer_list<int> numbers) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : numbers) sigaddset(&signals, number);
  return signals;
}

// Must run before any thread starts, so that no thread receives the signals.
void BlockSignals() {
  const sigset_t signals = SetOf({SIGTERM, SIGINT, SIGHUP});
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit is an error of the write
}

int WaitFor(std::initializer_list<int> numbers) {
  const sigset_t signals = SetOf(numbers);
  int signal = 0;
  sigwait(&signals, &signal);
  return signal;
}

// Ends the process when `time` and a little more are over, whatever happens until then. When gRPC
// could not start one of its threads, it waits for that thread for ever when it ends.
void LeaveWithin(absl::Duration time, int exit_status) {
  static std::atomic<int> status;
  status.store(exit_status);
  std::signal(SIGALRM, [](int) { _exit(status.load()); });
  alarm(kSpareSeconds + static_cast<unsigned>(absl::ToInt64Seconds(time)));
}

// Every connection takes two descriptors.
void RaiseDescriptorLimit(int max_connections) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = 2 * static_cast<rlim_t>(max_connections) + 64;
  if (limit.rlim_cur >= wanted) return;
  Log(LogLevel::kWarn, "few file descriptors",
      {{"limit", static_cast<int64_t>(limit.rlim_cur)}, {"wanted", static_cast<int64_t>(wanted)}});
}

// Reads flags, environment and file again. If they are invalid, nothing changes.
void Reload(const std::vector<std::string>& arguments, Server* server, ServerOptions* options) {
  const absl::StatusOr<ServerCommand> command = ParseServerCommand(arguments, Environment);
  absl::StatusOr<ReloadReport> report =
      command.ok() ? server->Reload(command->options) : command.status();
  (void)server->ReloadCredentials();  // errors are logged
  if (!report.ok()) {
    Log(LogLevel::kError, "reload refused", {{"error", std::string(report.status().message())}});
    return;
  }
  const bool more_connections = command->options.max_connections > options->max_connections;
  *options = command->options;
  SetLogLevel(LogLevelOf(options->log_level));
  Log(LogLevel::kInfo, "reloaded", {{"changed", report->changed}});
  if (more_connections) RaiseDescriptorLimit(options->max_connections);
  if (report->needs_restart.empty()) return;
  Log(LogLevel::kWarn, "restart needed", {{"options", report->needs_restart}});
}

// Serves until a signal to stop arrives, and returns it.
int ServeUntilStopped(const std::vector<std::string>& arguments, Server* server,
                      ServerOptions* options) {
  while (true) {
    const int signal = WaitFor({SIGTERM, SIGINT, SIGHUP});
    if (signal != SIGHUP) return signal;
    Reload(arguments, server, options);
  }
}

// gRPC's threads still run, so static objects must not be destroyed.
int Leave(int exit_status) {
  alarm(0);
#if defined(__SANITIZE_ADDRESS__)
  return exit_status;  // leaks are checked after main
#else
  std::fflush(nullptr);
  std::_Exit(exit_status);
#endif
}

// Has CUDA load all kernels when the device is opened: a card without machine code of its own
// compiles them for tens of seconds, for which no call should wait. No thread may run yet.
void LoadKernelsAtStart() { setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0); }

void AddOtelVariables(ServerOptions* options) {
  for (const std::string& name : EnvironmentNames()) {
    if (name.rfind("OTEL_", 0) == 0) options->otel_variables[name] = *Environment(name);
  }
}

absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options) {
  const StartWatch watch;
  return Server::Start(options);
}

int Run(const std::vector<std::string>& arguments, ServerOptions options) {
  const int cores = CoresOf(options, UsableCores());
  LimitHeaps(cores);
  options.passed_sockets = PassedDescriptors(Environment("LISTEN_PID"), Environment("LISTEN_FDS"));
  options.notify_socket = Environment("NOTIFY_SOCKET").value_or("");
  SetLogLevel(LogLevelOf(options.log_level));
  BlockSignals();
  LoadKernelsAtStart();
  for (const std::string& complaint : SuspectVariables(EnvironmentNames())) {
    Log(LogLevel::kWarn, "suspect variable", {{"complaint", complaint}});
  }
  RaiseDescriptorLimit(options.max_connections);
  absl::StatusOr<std::unique_ptr<Server>> server = Start(options);
  if (!server.ok()) return Complain(server.status(), kExitFailed);
  (*server)->ReceiveOnFewThreads(cores);
  Log(LogLevel::kInfo, "serving",
      {{"listeners", (*server)->listeners()},
       {"admin_listeners", (*server)->admin_listeners()},
       {"metrics_listeners", (*server)->metrics_listeners()},
       {"backend", (*server)->backend()},
       {"devices", (*server)->devices()}});
  NotifySystemd(options.notify_socket, "READY=1");

  // Sends this process a signal, as a user would: the thread that waits for signals then drains the
  // server.
  static std::atomic<bool> restarts = false;
  (*server)->WhenRestartIsDue([] {
    restarts.store(true);
    kill(getpid(), SIGTERM);
  });
  const int signal = ServeUntilStopped(arguments, server->get(), &options);
  // When a device was lost, the server has sent itself the first one, and a liveness probe that
  // fails meanwhile must not cut the drain short.
  LeaveAtSignal(restarts.load() ? 2 : 1);
  Log(LogLevel::kInfo, "draining", {{"signal", std::string(strsignal(signal))}});
  LeaveWithin(options.drain_delay + options.drain_timeout, kExitFailed);
  const bool drained = (*server)->Shutdown();
  Log(drained ? LogLevel::kInfo : LogLevel::kError, "stopped", {{"drained", drained}});
  const int status = restarts.load() ? kExitRestart : drained ? EXIT_SUCCESS : kExitFailed;
  KeepGrpcUntilExit();
  LeaveWithin(absl::ZeroDuration(), status);
  server->reset();
  return Leave(status);
}

int Main(const std::vector<std::string>& arguments) {
  OpenStandardStreams();
  NameMissingThreads();
  ChooseLockOrderChecks();
  absl::StatusOr<ServerCommand> command = ParseServerCommand(arguments, Environment);
  if (!command.ok()) return Complain(command.status(), kExitBadOptions);
  AddOtelVariables(&command->options);
  if (command->reads_options) {
    const auto trace = trace::ParseTraceOptions(command->options.otel_variables);
    if (!trace.ok()) return Complain(trace.status(), kExitBadOptions);
  }
  if (command->print.empty()) return Run(arguments, command->options);
  for (const std::string& complaint : SuspectVariables(EnvironmentNames())) {
    std::fprintf(stderr, "phasor-server: %s\n", complaint.c_str());
  }
  if (std::fputs(command->print.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) {
    return EXIT_SUCCESS;
  }
  return Complain(
      absl::UnavailableError("standard output: cannot be written; is it closed, or its disk full?"),
      kExitFailed);
}

}  // namespace
}  // namespace phasor

int main(int argc, char** argv) {
  return phasor::Main(std::vector<std::string>(argv + 1, argv + argc));
}
