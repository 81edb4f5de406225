// SPDX-License-Identifier: Apache-2.0
// slow_server BYTES: a server of known capacity: it has kWorkers workers, and every run takes
// kServiceTime. BYTES is its byte budget. Prints its address, and ends on SIGTERM or with its
// parent.
#include "tests/e2e/slow_server.h"

#include <signal.h>
#include <sys/prctl.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"
#include "kernels/base/cores.h"
#include "server/base/process.h"
#include "server/server.h"

namespace phasor {
namespace {

class SlowBackend final : public Backend {
 public:
  explicit SlowBackend(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}
  std::string_view name() const override { return backend_->name(); }
  std::string target() const override { return backend_->target(); }
  int threads() const override { return backend_->threads(); }
  absl::Status Run(absl::Span<const Job> jobs) override {
    const absl::Time end = absl::Now() + kServiceTime;
    absl::Status status = backend_->Run(jobs);
    absl::SleepFor(end - absl::Now());
    return status;
  }

 private:
  const std::unique_ptr<Backend> backend_;
};

int Main(int argc, char** argv) {
  if (argc != 2) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // of all threads
  LimitHeaps(UsableCores());                   // as phasor-server does
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.threads = kWorkers;
  options.inline_bytes = 0;
  options.max_inflight_bytes = std::atoll(argv[1]);
  options.max_message_bytes = kPayloadBytes * 2;
  options.log_level = "off";
  auto backend = MakeBackend({.name = "cpu", .threads = 1});
  if (!backend.ok()) return 1;
  auto server = Server::Start(options, std::make_unique<SlowBackend>(*std::move(backend)));
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", (*server)->listeners()[0].c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ends, &signal);
  return (*server)->Shutdown() ? 0 : 1;
}

}  // namespace
}  // namespace phasor

int main(int argc, char** argv) { return phasor::Main(argc, argv); }
