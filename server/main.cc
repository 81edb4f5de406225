// SPDX-License-Identifier: Apache-2.0
// phasor-server: options, signals, and a Server between them.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/config/server_command.h"
#include "server/log.h"
#include "server/server.h"

namespace phasor {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitBadOptions = 2;

std::optional<std::string> Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int Complain(const absl::Status& status, int exit_status) {
  std::fprintf(stderr, "phasor-server: %s\n", std::string(status.message()).c_str());
  return exit_status;
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Before any thread starts, so that none takes them.
void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int WaitForStopSignal() {
  const sigset_t signals = StopSignals();
  int signal = 0;
  sigwait(&signals, &signal);
  return signal;
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

int Run(const ServerOptions& options) {
  SetLogLevel(LogLevelOf(options.log_level));
  BlockStopSignals();
  RaiseDescriptorLimit(options.max_connections);
  const absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
  if (!server.ok()) return Complain(server.status(), kExitFailed);
  Log(LogLevel::kInfo, "serving",
      {{"listeners", (*server)->listeners()}, {"backend", (*server)->backend()}});

  const int signal = WaitForStopSignal();
  std::thread([] { _exit(128 + WaitForStopSignal()); }).detach();
  Log(LogLevel::kInfo, "draining", {{"signal", std::string(strsignal(signal))}});
  const bool drained = (*server)->Shutdown();
  Log(drained ? LogLevel::kInfo : LogLevel::kError, "stopped", {{"drained", drained}});
  return drained ? EXIT_SUCCESS : kExitFailed;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ServerCommand> command = ParseServerCommand(arguments, Environment);
  if (!command.ok()) return Complain(command.status(), kExitBadOptions);
  if (command->print.empty()) return Run(command->options);
  std::fputs(command->print.c_str(), stdout);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace phasor

int main(int argc, char** argv) {
  return phasor::Main(std::vector<std::string>(argv + 1, argv + argc));
}
