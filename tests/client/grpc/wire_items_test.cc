// SPDX-License-Identifier: Apache-2.0
// Tests which tensors are sent from where they lie, and which are gathered first.
#include "client/grpc/wire_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/common/calls.h"
#include "tests/support/status_matchers.h"

namespace phasor::client_internal {
namespace {

using ::phasor::testing::StatusIs;

const float* Floats(absl::Span<const std::byte> bytes) {
  return reinterpret_cast<const float*>(bytes.data());
}

TEST(WireItemsTest, DenseTensorsTravelFromWhereTheyLie) {
  std::vector<float> x(32, 2.0F);
  const std::vector<int64_t> positions = {4, 5};
  Payload payload;
  const auto item = MakeItem(RopeCall{.spec = {.preset = "rope-half-split"},
                                      .positions = positions,
                                      .tensors = {MutableView(x, {2, 2, 8})}},
                             kItemPath, payload);
  ASSERT_TRUE(item.ok()) << item.status();
  ASSERT_EQ(payload.raw.size(), 2);
  EXPECT_EQ(payload.raw[0].size(), 16);
  EXPECT_EQ(Floats(payload.raw[1]), x.data());
  EXPECT_EQ(item->tensors(0).tensor().strides_size(), 0);
}

TEST(WireItemsTest, GapsDoNotTravel) {
  std::vector<float> rows = {1, 2, 9, 3, 4, 9};
  Payload payload;
  const auto item = MakeItem(EncodeCall{.spec = {.preset = "transformer", .dim = 2},
                                        .positions = IntegerRange{0, 1, 2},
                                        .add_to = View(rows, {2, 2}, {3, 1})},
                             kItemPath, payload);
  ASSERT_TRUE(item.ok()) << item.status();
  ASSERT_EQ(payload.raw.size(), 1);
  ASSERT_EQ(payload.raw[0].size(), 16);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Floats(payload.raw[0])[i], static_cast<float>(i + 1));
  EXPECT_EQ(item->add_to().strides_size(), 0);
}

TEST(WireItemsTest, MemoryThatIsTooSmallIsNotSent) {
  std::vector<float> x(3);
  Payload payload;
  EXPECT_THAT(MakeItem(RopeCall{.tensors = {MutableView(x, {2, 2, 8})}}, "items[3]", payload),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::StartsWith("items[3].")));
}

TEST(WireItemsTest, PoolsOnADeviceAreNamed) {
  const auto connection = std::make_shared<int>();
  const DeviceMemory memory(std::make_shared<DeviceRegistration>(
      "kv", 100, connection, [](absl::Duration) { return absl::OkStatus(); }));
  Payload payload;
  const MoveCall call{.pools = {memory.Pool(60)}};
  EXPECT_THAT(MakeItem(call, kItemPath, payload),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "item.pools[0]: memory of a GPU; must be of the host"));
  payload.connection = connection.get();
  const auto item = MakeItem(call, kItemPath, payload);
  ASSERT_TRUE(item.ok()) << item.status();
  EXPECT_EQ(item->pools(0).size_bytes(), 40);
  EXPECT_EQ(item->pools(0).device().region(), "kv");
  EXPECT_EQ(item->pools(0).device().offset_bytes(), 60);
  EXPECT_TRUE(payload.raw.empty());
  EXPECT_TRUE(payload.names_device);
  EXPECT_EQ(payload.destinations, 1);
}

TEST(WireItemsTest, PoolsTravelFromWhereTheyLie) {
  std::vector<std::byte> memory(48);
  const auto bytes = absl::MakeSpan(memory);
  Payload payload;
  const auto item =
      MakeItem(MoveCall{.pools = {bytes.subspan(0, 16), bytes.subspan(16)}}, kItemPath, payload);
  ASSERT_TRUE(item.ok()) << item.status();
  ASSERT_EQ(payload.raw.size(), 2);
  EXPECT_EQ(payload.raw[1].data(), memory.data() + 16);
  EXPECT_EQ(item->pools(1).size_bytes(), 32);
  EXPECT_EQ(payload.destinations, 0);
}

}  // namespace
}  // namespace phasor::client_internal
