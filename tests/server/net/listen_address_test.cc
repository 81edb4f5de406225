// SPDX-License-Identifier: Apache-2.0
// Tests addresses in the form that users write.
#include "server/net/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace phasor {
namespace {

using ::testing::HasSubstr;

TEST(ParseListenAddressTest, ReadsHostAndPort) {
  const auto v4 = ParseListenAddress("127.0.0.1:50051");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->host, "127.0.0.1");
  EXPECT_EQ(v4->port, 50051);
  EXPECT_EQ(ParseListenAddress("localhost:0")->host, "localhost");
  EXPECT_EQ(ParseListenAddress("[::1]:65535")->host, "::1");
  EXPECT_EQ(ParseListenAddress("[::1]:65535")->port, 65535);
}

TEST(ParseListenAddressTest, ReadsUnixPaths) {
  const auto address = ParseListenAddress("unix:/run/phasor.sock");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->unix_path, "/run/phasor.sock");
}

TEST(ParseListenAddressTest, RefusesWhatIsNoAddress) {
  for (const std::string text : {"", "host", ":1", "host:", "host:x", "host:-1", "host:65536",
                                 "::1:50051", "[]:1", "unix:", "unix:relative", "host:1 "}) {
    const auto address = ParseListenAddress(text);
    EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(address.status().message(), HasSubstr("listen: '" + text + "'")) << text;
  }
}

TEST(ParseListenAddressTest, RefusesUnixPathsThatTheKernelCannotTake) {
  EXPECT_TRUE(ParseListenAddress("unix:/" + std::string(106, 'x')).ok());
  EXPECT_FALSE(ParseListenAddress("unix:/" + std::string(107, 'x')).ok());
}

TEST(IsOfThisHostTest, TellsLoopbackAndUnixSocketsFromAllElse) {
  for (const char* mine : {"unix:/a", "localhost:1", "127.0.0.1:1", "127.255.0.1:1", "[::1]:1"}) {
    EXPECT_TRUE(IsOfThisHost(*ParseListenAddress(mine))) << mine;
  }
  for (const char* all : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "128.0.0.1:1", "[::2]:1",
                          "[::ffff:127.0.0.1]:1", "host:1", "127.0.0.1.example.org:1"}) {
    EXPECT_FALSE(IsOfThisHost(*ParseListenAddress(all))) << all;
  }
}

}  // namespace
}  // namespace phasor
