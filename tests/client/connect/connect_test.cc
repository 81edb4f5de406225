// SPDX-License-Identifier: Apache-2.0
// Tests that the target chooses the connection, and that bad targets and options are refused.
#include <string>

#include "absl/strings/match.h"
#include "client/client.h"
#include "gtest/gtest.h"

namespace phasor {
namespace {

TEST(ConnectTest, TargetsChooseTheConnection) {
  auto here = Client::Connect("inproc:");
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_TRUE(here->CheckHealth().ok());
  auto there = Client::Connect("unix:/nonexistent/phasor.sock", {.max_attempts = 1});
  ASSERT_TRUE(there.ok()) << there.status();  // does not wait for a server
  EXPECT_EQ(there->CheckHealth().status().code(), absl::StatusCode::kUnavailable);
}

TEST(ConnectTest, RejectsAddressesThatCannotBeRead) {
  for (const std::string& target : {std::string("ipv4:999.1.1.1:5"), std::string("ipv4:127.0.0.1"),
                                    std::string("ipv6:a:5"), "unix:/" + std::string(200, 'a')}) {
    const absl::Status status = Client::Connect(target).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << target;
    EXPECT_TRUE(absl::StrContains(status.message(), target)) << status;
  }
}

TEST(ConnectTest, RejectsUnknownTargetsAndBadOptions) {
  EXPECT_EQ(Client::Connect("carrier-pigeon").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Client::Connect("inproc:", {.channels = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace phasor
