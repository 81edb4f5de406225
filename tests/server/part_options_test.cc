// SPDX-License-Identifier: Apache-2.0
// What the parts of a server take from its options.
#include "server/part_options.h"

#include <gtest/gtest.h>

#include <memory>

namespace phasor {
namespace {

TEST(PartOptionsTest, RegionsOfAConnectionEndWithItButThoseOfUnixSocketsStay) {
  Connections connections;
  const auto names = std::make_shared<memory::RegionNames>();
  const auto options = RegionStoreOptionsOf(ServerOptions(), names, connections);
  connections.Open("ipv4:127.0.0.1:4000");
  const std::string name = connections.NameOf("ipv4:127.0.0.1:4000");
  EXPECT_TRUE(options.is_open(name));
  connections.Close("ipv4:127.0.0.1:4000", connections.NumberOf("ipv4:127.0.0.1:4000"));
  EXPECT_FALSE(options.is_open(name));
  EXPECT_TRUE(options.is_open("unix:"));
  EXPECT_FALSE(DeviceRegionOptionsOf(ServerOptions(), names, connections).is_open(name));
}

TEST(PartOptionsTest, LeasesNeedASocket) {
  const memory::LeaseStore leases({1 << 20, 4});
  ServerOptions options;
  options.lease_socket.clear();
  EXPECT_EQ(ServiceOptionsOf(options, nullptr, nullptr, {&leases}).memory.leases, nullptr);
  options.lease_socket = "/run/lease.sock";
  EXPECT_EQ(ServiceOptionsOf(options, nullptr, nullptr, {&leases}).memory.leases, &leases);
  EXPECT_EQ(InferenceOptionsOf(options, nullptr, {&leases}, {}).memory.leases, nullptr);
}

TEST(PartOptionsTest, PartsHaveTheLimitsOfTheServer) {
  ServerOptions options;
  options.plan_cache_bytes = 12345;
  options.max_batch_items = 7;
  options.max_table_bytes = 99;
  EXPECT_EQ(EngineOptionsOf(options, nullptr).plan_cache_bytes, 12345);
  EXPECT_EQ(ServiceOptionsOf(options, nullptr, nullptr, {}).max_batch_items, 7);
  EXPECT_EQ(TableStoreOptionsOf(options).max_table_bytes, 99);
}

TEST(PartOptionsTest, FewThreadsMeanFewCores) {
  ServerOptions options;
  EXPECT_EQ(CoresOf(options, 128), 128);
  options.threads = 4;
  EXPECT_EQ(CoresOf(options, 128), 4);
  EXPECT_EQ(CoresOf(options, 2), 2);
}

}  // namespace
}  // namespace phasor
