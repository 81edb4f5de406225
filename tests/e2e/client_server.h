// SPDX-License-Identifier: Apache-2.0
// A real server in this process, reached over TCP and over a Unix socket, beside "inproc:".
#ifndef PHASOR_TESTS_E2E_CLIENT_SERVER_H_
#define PHASOR_TESTS_E2E_CLIENT_SERVER_H_

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "client/client.h"
#include "gtest/gtest.h"
#include "server/server.h"
#include "tests/support/running_server.h"

namespace phasor {

// Owns the server. The clients share it.
class ClientServerTest : public ::testing::Test {
 protected:
  // `backend`: computes instead of what the options say.
  void Start(ServerOptions options = {}, std::unique_ptr<Backend> backend = nullptr) {
    const std::string path =
        ::testing::TempDir() + "/phasor_e2e_" + std::to_string(getpid()) + ".sock";
    options.listen = {"127.0.0.1:0", "unix:" + path};
    server_ = testing::StartServer(options, std::move(backend));
    ASSERT_NE(server_, nullptr);
    tcp_ = Connect(server_->listeners()[0]);
    unix_ = Connect("unix:" + path);
    here_ = Connect("inproc:");
  }
  // Options with a lease socket.
  static ServerOptions Options() {
    ServerOptions options;
    options.lease_socket =
        ::testing::TempDir() + "/phasor_lease_" + std::to_string(getpid()) + ".sock";
    return options;
  }
  static Client Connect(const std::string& target, const ClientOptions& options = {}) {
    auto client = Client::Connect(target, options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  std::unique_ptr<Server> server_;
  Client tcp_{nullptr};
  Client unix_{nullptr};
  Client here_{nullptr};
};

inline const Spec kLlama = {.preset = "llama-2", .head_dim = 64};

}  // namespace phasor

#endif  // PHASOR_TESTS_E2E_CLIENT_SERVER_H_
