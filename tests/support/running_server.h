// SPDX-License-Identifier: Apache-2.0
// A whole server in this process on a free port of 127.0.0.1, and channels to it.
#ifndef PHASOR_TESTS_SUPPORT_RUNNING_SERVER_H_
#define PHASOR_TESTS_SUPPORT_RUNNING_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/backend/backend.h"
#include "server/base/log.h"
#include "server/config/options.h"
#include "server/server.h"

namespace phasor::testing {

// Options of a server that is quick to start and to stop.
inline ServerOptions TestOptions() {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.threads = 2;
  return options;
}

// The same with shared memory that clients name.
inline ServerOptions SharedMemoryOptions() {
  ServerOptions options = TestOptions();
  options.shared_memory = true;
  return options;
}

// On `backend`, which the server then owns, or on that of the options.
inline std::unique_ptr<Server> StartServer(const ServerOptions& options = TestOptions(),
                                           std::unique_ptr<Backend> backend = nullptr) {
  SetLogLevel(LogLevel::kWarn);
  absl::StatusOr<std::unique_ptr<Server>> server =
      backend == nullptr ? Server::Start(options) : Server::Start(options, std::move(backend));
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

// A channel with a connection of its own.
inline std::shared_ptr<grpc::Channel> NewChannel(const std::string& address,
                                                 grpc::ChannelArguments arguments = {}) {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// The context of a call that gives up after a time that is only reached when something hangs.
struct TestContext : grpc::ClientContext {
  explicit TestContext(std::chrono::milliseconds time = std::chrono::seconds(60)) {
    set_deadline(std::chrono::system_clock::now() + time);
  }
};

// Calls method `call` of `stub`.
template <typename Stub, typename Request, typename Response>
grpc::Status Call(Stub& stub,
                  grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request, Response* response) {
  TestContext context;
  return (stub.*call)(&context, request, response);
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_RUNNING_SERVER_H_
