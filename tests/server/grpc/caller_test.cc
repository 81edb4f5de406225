// SPDX-License-Identifier: Apache-2.0
// Tests which callers are one client, which are on another host, and when their calls must end.
#include "server/grpc/caller.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "kernels/base/steady_time.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"

namespace phasor::rpc {
namespace {

TEST(CallerTest, AClientIsAHost) {
  EXPECT_EQ(ClientOfPeer("ipv4:10.0.0.1:80"), ClientOfPeer("ipv4:10.0.0.1:4711"));
  EXPECT_NE(ClientOfPeer("ipv4:10.0.0.1:80"), ClientOfPeer("ipv4:10.0.0.2:80"));
  EXPECT_EQ(ClientOfPeer("ipv6:%5Bfe80::1%5D:80"), ClientOfPeer("ipv6:%5Bfe80::1%5D:81"));
  EXPECT_NE(ClientOfPeer("ipv6:%5Bfe80::1%5D:80"), ClientOfPeer("ipv6:%5Bfe80::2%5D:80"));
  EXPECT_EQ(ClientOfPeer("unix:"), ClientOfPeer("unix:"));
  EXPECT_EQ(ClientOfPeer("unknown"), ClientOfPeer("unknown"));
}

TEST(CallerTest, OtherHostsAreRemote) {
  for (const char* peer : {"unix:", "unix:/x", "ipv4:127.0.0.1:80", "ipv4:127.8.0.1:80",
                           "ipv6:%5B::1%5D:80", "ipv6:[::1]:80"}) {
    EXPECT_FALSE(IsRemotePeer(peer)) << peer;
  }
  for (const char* peer : {"ipv4:10.0.0.1:80", "ipv4:128.0.0.1:80", "ipv6:%5B::2%5D:80",
                           "ipv6:[::1234]:80", "unknown", "", "inproc"}) {
    EXPECT_TRUE(IsRemotePeer(peer)) << peer;
  }
}

TEST(CallerTest, TheAddressOfAPeerIsThatOfTheListener) {
  EXPECT_EQ(AddressOfPeer("ipv4:10.0.0.1:4711"), "10.0.0.1:4711");
  EXPECT_EQ(AddressOfPeer("ipv6:%5B::1%5D:4711"), "::1:4711");
  EXPECT_EQ(AddressOfPeer("ipv6:[::1]:4711"), "::1:4711");
  EXPECT_EQ(AddressOfPeer("ipv6:%5Bfe80::1%25eth0%5D:4711"), "fe80::1:4711");
  EXPECT_EQ(AddressOfPeer("unix:"), "");
  EXPECT_EQ(AddressOfPeer("ipv6:"), "");
}

// Notes how long its last call has left.
class Clockwatcher final : public v1::PositionEmbeddingService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ListPresets(grpc::CallbackServerContext* context,
                                        const v1::ListPresetsRequest*,
                                        v1::ListPresetsResponse*) override {
    left = DeadlineOf(*context) - SteadyNow();
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  absl::Duration left;
};

TEST(CallerTest, ADeadlineIsByTheSteadyClock) {
  Clockwatcher service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto stub = v1::PositionEmbeddingService::NewStub(server->InProcessChannel({}));
  v1::ListPresetsResponse response;
  grpc::ClientContext never, later;
  ASSERT_TRUE(stub->ListPresets(&never, {}, &response).ok());
  EXPECT_EQ(service.left, absl::InfiniteDuration());
  later.set_deadline(WallTimeAfter(absl::Hours(1)));
  ASSERT_TRUE(stub->ListPresets(&later, {}, &response).ok());
  EXPECT_GT(service.left, absl::ZeroDuration());
  EXPECT_LE(service.left, absl::Hours(1) + absl::Seconds(1)) << "gRPC rounds up";
  constexpr int64_t kSeconds = int64_t{300} * 366 * 24 * 3600;  // beyond 2^63 nanoseconds
  grpc::ClientContext centuries;
  centuries.set_deadline(gpr_time_from_seconds(kSeconds, GPR_TIMESPAN));
  ASSERT_TRUE(stub->ListPresets(&centuries, {}, &response).ok());
  EXPECT_GT(service.left, absl::Seconds(kSeconds - 60));
}

}  // namespace
}  // namespace phasor::rpc
