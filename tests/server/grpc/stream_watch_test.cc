// SPDX-License-Identifier: Apache-2.0
// Tests the watch with a gRPC server in this process and hand-made peers.
// tests/e2e/open_calls_test.cc tests that connections are closed.
#include "server/grpc/stream_watch.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/eventually.h"
#include "tests/support/http2_frames.h"
#include "tests/support/running_server.h"
#include "tests/support/socket_client.h"

namespace phasor {
namespace {

std::string LocalPort(const FileDescriptor& fd) {
  sockaddr_in local = {};
  socklen_t length = sizeof(local);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &length);
  return std::to_string(ntohs(local.sin_port));
}

TEST(StreamWatchTest, NamesThePeerThatHasTooManyCalls) {
  const auto server = testing::StartServer();
  const FileDescriptor modest = ConnectTo(server->listeners()[0]);
  const FileDescriptor busy = ConnectTo(server->listeners()[0]);
  for (const auto& [peer, calls] : {std::pair{&modest, 2U}, {&busy, 3U}}) {
    ASSERT_TRUE(testing::Send(*peer, testing::kHello));
    for (uint32_t i = 0; i < calls; ++i) {
      ASSERT_TRUE(testing::Send(*peer, testing::CallHeaders(testing::kEndHeaders, 2 * i + 1)));
    }
    ASSERT_TRUE(testing::WaitUntilRead(*peer));
  }
  absl::Mutex mu;
  std::set<std::string> named;
  const StreamWatch watch(2, [&](const std::string& peer) {
    absl::MutexLock lock(&mu);
    named.insert(peer);
  });
  EXPECT_TRUE(testing::Eventually([&] {
    absl::MutexLock lock(&mu);
    return !named.empty();
  }));
  absl::MutexLock lock(&mu);
  EXPECT_EQ(named, std::set<std::string>{"127.0.0.1:" + LocalPort(busy)});
}

}  // namespace
}  // namespace phasor
