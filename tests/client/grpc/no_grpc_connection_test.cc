// SPDX-License-Identifier: Apache-2.0
// Links phasor::inproc.
#include "client/client.h"
#include "gtest/gtest.h"

namespace phasor {
namespace {

TEST(NoGrpcConnectionTest, ServersAreUnimplementedAndInprocWorks) {
  EXPECT_EQ(Client::Connect("phasor:50051").status().code(), absl::StatusCode::kUnimplemented);
  auto client = Client::Connect("inproc:");
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE(client->Encode({.preset = "transformer", .dim = 4}, {2}).ok());
}

}  // namespace
}  // namespace phasor
