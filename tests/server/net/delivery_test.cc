// SPDX-License-Identifier: Apache-2.0
// Tests when written bytes count as delivered.
#include "server/net/delivery.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "server/net/listen_socket.h"
#include "tests/support/eventually.h"
#include "tests/support/socket_client.h"

namespace phasor {
namespace {

using testing::Eventually;

// The two ends of a connection; the server's does not block.
class DeliveryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto listening = Listen(std::vector<std::string>{"127.0.0.1:0"}, SocketAccess());
    ASSERT_TRUE(listening.ok()) << listening.status();
    client_ = ConnectTo(listening->front().address(), SocketThatHoldsLittle());
    ASSERT_TRUE(client_.valid());
    pollfd waits = {listening->front().fd(), POLLIN, 0};
    ASSERT_EQ(poll(&waits, 1, 30000), 1);
    server_ = FileDescriptor(accept4(listening->front().fd(), nullptr, nullptr, SOCK_NONBLOCK));
    ASSERT_TRUE(server_.valid());
  }

  FileDescriptor client_;
  FileDescriptor server_;
};

TEST_F(DeliveryTest, NothingWrittenIsDelivered) { EXPECT_TRUE(Delivery(server_.get()).done()); }

TEST_F(DeliveryTest, FewBytesAreDeliveredBeforeTheyAreRead) {
  ASSERT_EQ(write(server_.get(), "few", 3), 3);
  const Delivery delivery(server_.get());
  EXPECT_TRUE(Eventually([&] { return delivery.done(); }));
}

TEST_F(DeliveryTest, MoreThanTheOtherSideHoldsIsDeliveredWhenItReads) {
  const int64_t written = WriteUntilFull(server_.get());
  const Delivery delivery(server_.get());
  EXPECT_FALSE(delivery.done());
  EXPECT_EQ(ReadBytes(client_.get(), written), written);
  EXPECT_TRUE(Eventually([&] { return delivery.done(); }));
}

TEST_F(DeliveryTest, LaterBytesDoNotCount) {
  const int64_t written = WriteUntilFull(server_.get());
  const Delivery delivery(server_.get());
  EXPECT_EQ(ReadBytes(client_.get(), written / 2), written / 2);
  ASSERT_TRUE(Eventually([&] { return WriteUntilFull(server_.get()) > 0; }));
  EXPECT_EQ(ReadBytes(client_.get(), written - written / 2), written - written / 2);
  WriteUntilFull(server_.get());
  EXPECT_TRUE(Eventually([&] { return delivery.done(); }));
}

TEST_F(DeliveryTest, ABrokenConnectionDeliversNothingMore) {
  WriteUntilFull(server_.get());
  const Delivery delivery(server_.get());
  const linger reset = {1, 0};
  setsockopt(client_.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  client_.Close();
  EXPECT_TRUE(Eventually([&] { return delivery.done(); }));
}

TEST(DeliveryOfUnixSocketTest, ToWriteIsToDeliver) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const FileDescriptor client(ends[0]);
  const FileDescriptor server(ends[1]);
  EXPECT_GT(WriteUntilFull(server.get()), 0);
  EXPECT_TRUE(Delivery(server.get()).done());
}

}  // namespace
}  // namespace phasor
