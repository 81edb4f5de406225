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

inline std::unique_ptr<Server> StartServer(const ServerOptions& options = TestOptions()) {
  SetLogLevel(LogLevel::kWarn);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

// The same on a backend of the test's, which the server owns.
inline std::unique_ptr<Server> StartServer(const ServerOptions& options,
                                           std::unique_ptr<Backend> backend) {
  SetLogLevel(LogLevel::kWarn);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(options, std::move(backend));
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

// Makes `context` give up after a time that is only reached when something hangs.
inline void SetTestDeadline(grpc::ClientContext* context,
                            std::chrono::milliseconds time = std::chrono::seconds(60)) {
  context->set_deadline(std::chrono::system_clock::now() + time);
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_RUNNING_SERVER_H_
