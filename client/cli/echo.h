// SPDX-License-Identifier: Apache-2.0
// A gRPC server in its own process that answers a given number of bytes, and calls to it. It
// measures what a call costs when nothing reads the bytes.
#ifndef PHASOR_CLIENT_CLI_ECHO_H_
#define PHASOR_CLIENT_CLI_ECHO_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/load.h"

namespace phasor::cli {

// Runs in the child process. Serves on `unix_path`, or on a port of 127.0.0.1 if it is empty, and
// prints the address. Returns when standard input ends. The method "/bytes/N" answers N bytes.
absl::Status ServeEcho(const std::string& unix_path);

// The child process, seen from the parent. Owns the process, and the directory of its socket if
// there is one. Threads: one.
class EchoServer {
 public:
  // Runs `program echo-server [--unix PATH]`. INTERNAL: the child does not serve.
  static absl::StatusOr<std::unique_ptr<EchoServer>> Start(const std::string& program,
                                                           bool unix_socket);
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  const std::string& address() const { return address_; }

 private:
  EchoServer() = default;

  std::string directory_;
  std::string address_;
  pid_t pid_ = 0;
  int to_child_ = -1;
};

// Largest request or reply: a little less than gRPC's own limit.
inline constexpr int64_t kMaxEchoBytes = (int64_t{1} << 31) - (int64_t{64} << 10);

struct EchoSizes {
  int64_t request_bytes;
  int64_t reply_bytes;
};

// One operation per worker. Workers share `channels` connections in turn.
std::vector<Operation> EchoOperations(const std::string& address, const EchoSizes& sizes,
                                      int workers, int channels, absl::Duration timeout);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_ECHO_H_
