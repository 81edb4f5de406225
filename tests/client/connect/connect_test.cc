// SPDX-License-Identifier: Apache-2.0
// Tests that the target chooses the connection, and that bad targets and options are refused.
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

TEST(ConnectTest, RejectsUnknownTargetsAndBadOptions) {
  EXPECT_EQ(Client::Connect("carrier-pigeon").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Client::Connect("inproc:", {.channels = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace phasor
