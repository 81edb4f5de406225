// SPDX-License-Identifier: Apache-2.0
// Tests that a connection is never taken for an earlier one from the same address and port.
#include "server/net/connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kPeer[] = "127.0.0.1:4711";

class ConnectionsTest : public ::testing::Test {
 protected:
  ConnectionsTest() {
    connections_.WhenClosed([this](const std::string& name) {
      EXPECT_FALSE(connections_.IsOpen(name));
      closed_.push_back(name);
    });
  }

  std::vector<std::string> closed_;
  Connections connections_;
};

TEST_F(ConnectionsTest, AConnectionIsOpenUntilItCloses) {
  connections_.Open(kPeer);
  const std::string name = connections_.NameOf(kPeer);
  EXPECT_TRUE(connections_.IsOpen(name));
  EXPECT_FALSE(connections_.IsOpen(connections_.NameOf("127.0.0.1:4712")));
  connections_.Close(kPeer, connections_.NumberOf(kPeer));
  EXPECT_THAT(closed_, ElementsAre(name));
  EXPECT_FALSE(connections_.IsOpen(connections_.NameOf(kPeer)));
}

TEST_F(ConnectionsTest, TheNextFromTheSamePortIsAnother) {
  connections_.Open(kPeer);
  const uint64_t number = connections_.NumberOf(kPeer);
  const std::string first = connections_.NameOf(kPeer);
  connections_.Open(kPeer);  // before the listener has noticed that the first has closed
  EXPECT_THAT(closed_, ElementsAre(first));
  const std::string second = connections_.NameOf(kPeer);
  EXPECT_NE(second, first);
  connections_.Close(kPeer, number);
  EXPECT_THAT(closed_, ElementsAre(first)) << "the second is open";
  EXPECT_TRUE(connections_.IsOpen(second));
}

TEST_F(ConnectionsTest, UnixSocketsHaveNoNames) {
  connections_.Open("");
  connections_.Close("", 0);
  EXPECT_EQ(connections_.NumberOf(""), 0u);
  EXPECT_THAT(closed_, IsEmpty());
}

}  // namespace
}  // namespace phasor
