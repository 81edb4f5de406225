// SPDX-License-Identifier: Apache-2.0
// Tests that the functions which gRPC calls are ours, for the sockets that are filtered and no
// others. tests/e2e/abuse_test.cc tests them under gRPC, with TLS too.
#include "server/grpc/filtered_reads.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "kernels/base/steady_time.h"
#include "server/base/file_descriptor.h"
#include "tests/support/http2_frames.h"

namespace phasor {
namespace {

struct Pair {
  FileDescriptor server, client;
};

Pair Connected() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {FileDescriptor(fds[0]), FileDescriptor(fds[1])};
}

std::unique_ptr<FrameFilter> Filter() {
  return std::make_unique<FrameFilter>(100, std::make_shared<ResetBudget>(SteadyNow()));
}

// Reads with one recvmsg, in two pieces.
ssize_t Receive(const FileDescriptor& fd) {
  char first[7], second[4096];
  iovec pieces[2] = {{first, sizeof(first)}, {second, sizeof(second)}};
  msghdr message = {};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  return recvmsg(fd.get(), &message, MSG_DONTWAIT);
}

const std::string& Flood() {
  static const auto* const flood =
      new std::string(std::string(testing::kHello) +
                      testing::Frame(testing::FrameType::kHeaders, 0, std::string(200, 'x')));
  return *flood;
}

TEST(FilteredReadsTest, AFloodEndsTheConnection) {
  const Pair pair = Connected();
  FilterReads(pair.server.get(), Filter());
  ASSERT_TRUE(testing::Send(pair.client, testing::kHello));
  EXPECT_EQ(Receive(pair.server), static_cast<ssize_t>(testing::kHello.size()));
  ASSERT_TRUE(testing::Send(pair.client, Flood().substr(testing::kHello.size())));
  EXPECT_EQ(Receive(pair.server), 0);
  EXPECT_TRUE(testing::IsClosed(pair.client));
}

TEST(FilteredReadsTest, AFilterGoesWithItsDescriptor) {
  int number = -1;
  {
    const Pair pair = Connected();
    number = pair.server.get();
    FilterReads(number, Filter());
  }
  const Pair pair = Connected();
  ASSERT_TRUE(pair.server.get() == number || pair.client.get() == number);
  for (const auto& [from, to] :
       {std::pair(&pair.client, &pair.server), {&pair.server, &pair.client}}) {
    ASSERT_TRUE(testing::Send(*from, Flood()));
    EXPECT_EQ(Receive(*to), static_cast<ssize_t>(Flood().size()));
  }
}

}  // namespace
}  // namespace phasor
