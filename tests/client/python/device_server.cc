// SPDX-License-Identifier: Apache-2.0
// python_device_server --listen ADDRESS --lease-socket PATH: a server on a fake GPU, which takes
// memory of GPUs. Prints a line for each allocation that it exports, "memory FD BYTES HANDLE": the
// file that holds its bytes, and the handle that CUDA IPC would give for it. Ends on SIGTERM.
#include <signal.h>
#include <sys/prctl.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/escaping.h"
#include "server/server.h"
#include "tests/support/device_backend.h"

namespace phasor {
namespace {

int Main(int argc, char** argv) {
  if (argc != 5) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // of all threads
  ServerOptions options;
  options.listen = {argv[2]};
  options.lease_socket = argv[4];
  options.shared_memory = true;
  options.log_level = "off";
  testing::DeviceBackend backend;
  std::vector<std::shared_ptr<testing::FakeExport>> exported;
  for (int i = 0; i < 2; ++i) {
    const auto& memory = exported.emplace_back(backend.device().Export(int64_t{1} << 20));
    std::printf("memory %d %lld %s\n", memory->fd(), static_cast<long long>(memory->bytes()),
                absl::BytesToHexString(memory->handle_bytes()).c_str());
  }
  std::fflush(stdout);
  auto server = Server::Start(options, backend.Take());
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  int signal = 0;
  sigwait(&ends, &signal);
  const bool drained = (*server)->Shutdown();
  std::printf("open mappings %lld\n", static_cast<long long>(backend.device().open_mappings()));
  std::fflush(stdout);
  return drained ? 0 : 1;
}

}  // namespace
}  // namespace phasor

int main(int argc, char** argv) { return phasor::Main(argc, argv); }
