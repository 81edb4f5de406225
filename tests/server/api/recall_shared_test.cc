// SPDX-License-Identifier: Apache-2.0
// Tests that messages which name shared memory are recalled as others are, that the memory is
// looked up every time, and that destinations fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/memory/device_region_store.h"
#include "server/memory/lease_store.h"
#include "server/memory/region_store.h"
#include "tests/server/api/remembering.h"
#include "tests/support/device_backend.h"
#include "tests/support/fake_clock.h"
#include "tests/support/memfd.h"
#include "tests/support/requests.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::EncodeRequestOf;
using ::phasor::testing::IsOk;
using ::phasor::testing::RopeOf;
using ::phasor::testing::RopeRequestOf;
using ::phasor::testing::SetShape;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Ne;
using ::testing::Pair;

// Shared memory of all kinds, 4096 bytes each.
class SharedMemories {
 public:
  SharedMemories() {
    memory::DevicePlace place{.bytes = kBytes};
    place.handle = exported_->handle();
    EXPECT_THAT(regions_.Register("named", {.key = named_.key(), .bytes = kBytes}, Me()), IsOk());
    EXPECT_THAT(devices_.Register("kv", place, Me(), {}, {}), IsOk());
  }

  static memory::RegionCaller Me() { return {.peer = "1", .identity = "me"}; }
  memory::Stores stores() {
    return {.leases = &leases_, .regions = &regions_, .devices = &devices_};
  }
  memory::LeaseStore& leases() { return leases_; }
  memory::RegionStore& regions() { return regions_; }
  const std::string& lease() const { return lease_; }

 private:
  static constexpr int64_t kBytes = 4096;

  const testing::Memfd memfd_{kBytes};
  const testing::SharedMemory named_{std::string(kBytes, 'n')};
  testing::DeviceBackend backend_;
  const std::shared_ptr<testing::FakeExport> exported_ = backend_.device().Export(kBytes);
  engine::FakeClock clock_;
  memory::LeaseStore leases_{memory::OwnerLimits{}};
  memory::RegionStore regions_{{.enabled = true}};
  memory::DeviceRegionStore devices_{backend_.cuda().devices(), {.enabled = true}, &clock_};
  const std::string lease_ = *leases_.Add(memfd_.fd(), "me");
};

void Lease(const SharedMemories& memories, int64_t offset, v1::TensorSpec* tensor) {
  tensor->mutable_region()->set_region(memories.lease());
  tensor->mutable_region()->set_offset_bytes(offset);
}

// A rotation of one tensor that is leased, in place.
v1::ApplyRoPERequest LeasedRope(const SharedMemories& memories, int64_t offset) {
  v1::ApplyRoPERequest request;
  *request.mutable_item() = RopeOf(2);
  request.mutable_item()->mutable_tensors()->RemoveLast();
  v1::RopeTensor& tensor = *request.mutable_item()->mutable_tensors(0);
  Lease(memories, offset, tensor.mutable_tensor());
  *tensor.mutable_destination() = tensor.tensor();
  return request;
}

// Rows that are written to leased memory.
v1::EncodeRequest LeasedEncode(const SharedMemories& memories, int64_t count) {
  v1::EncodeRequest request = EncodeRequestOf(count);
  SetShape(request.mutable_item()->mutable_destination(), v1::DTYPE_FLOAT32, {count, 8});
  Lease(memories, 256, request.mutable_item()->mutable_destination());
  return request;
}

// Messages with tensors in shared memory.
std::vector<KnownMessage> SharedMessages(const SharedMemories& memories) {
  v1::ApplyRoPERequest mixed = RopeRequestOf(2);
  mixed.mutable_raw()->DeleteSubrange(1, 1);
  v1::RopeTensor& named = *mixed.mutable_item()->mutable_tensors(1);
  named.mutable_tensor()->mutable_region()->set_region("named");
  named.mutable_tensor()->mutable_region()->set_offset_bytes(64);
  Lease(memories, 512, mixed.mutable_item()->mutable_tensors(0)->mutable_destination());
  SetShape(mixed.mutable_item()->mutable_tensors(0)->mutable_destination(), v1::DTYPE_FLOAT32,
           {2, 2, 8});

  v1::ApplyRoPERequest device = LeasedRope(memories, 0);
  v1::RopeTensor& cached = *device.mutable_item()->mutable_tensors(0);
  cached.mutable_tensor()->mutable_device()->set_region("kv");
  cached.mutable_tensor()->mutable_device()->set_offset_bytes(128);
  *cached.mutable_destination() = cached.tensor();

  v1::ApplyRoPERequest positions = RopeRequestOf(2);
  v1::TensorSpec& of_tokens = *positions.mutable_item()->mutable_positions()->mutable_tensor();
  SetShape(&of_tokens, v1::DTYPE_INT32, {2});
  Lease(memories, 0, &of_tokens);

  v1::ApplyRoPERequest paged = RopeRequestOf(2);
  paged.clear_raw();
  v1::ApplyRoPEItem& item = *paged.mutable_item();
  Lease(memories, 0, item.mutable_tensors(0)->mutable_tensor());
  Lease(memories, 128, item.mutable_tensors(1)->mutable_tensor());
  v1::PagedCacheWrite& cache = *item.mutable_paged_cache();
  cache.set_key_index(1);
  SetShape(cache.mutable_values(), v1::DTYPE_FLOAT32, {2, 1, 8});
  SetShape(cache.mutable_key_cache(), v1::DTYPE_FLOAT32, {2, 4, 1, 8});
  SetShape(cache.mutable_value_cache(), v1::DTYPE_FLOAT32, {2, 4, 1, 8});
  SetShape(cache.mutable_slot_mapping(), v1::DTYPE_INT32, {2});
  Lease(memories, 192, cache.mutable_values());
  Lease(memories, 1024, cache.mutable_key_cache());
  Lease(memories, 2048, cache.mutable_value_cache());
  paged.add_raw("slotmaps");

  v1::EncodeRequest added = LeasedEncode(memories, 2);
  SetShape(added.mutable_item()->mutable_add_to(), v1::DTYPE_FLOAT32, {2, 8});
  Lease(memories, 1024, added.mutable_item()->mutable_add_to());

  v1::StreamEncodeRequest streamed;
  streamed.set_id(7);
  *streamed.mutable_item() = LeasedEncode(memories, 3).item();
  return {{ParseApplyRoPE, LeasedRope(memories, 256).SerializeAsString()},
          {ParseApplyRoPE, mixed.SerializeAsString()},
          {ParseApplyRoPE, device.SerializeAsString()},
          {ParseApplyRoPE, positions.SerializeAsString()},
          {ParseApplyRoPE, paged.SerializeAsString()},
          {ParseEncode, LeasedEncode(memories, 2).SerializeAsString()},
          {ParseEncode, added.SerializeAsString()},
          {Streamed(ParseStreamEncode), streamed.SerializeAsString()}};
}

TEST(RecallSharedTest, ARepeatedMessageIsRecalledAndMeansTheSame) {
  SharedMemories memories;
  for (const KnownMessage& message : SharedMessages(memories)) {
    ExpectRecalled(message, {memories.stores(), SharedMemories::Me()});
  }
}

TEST(RecallSharedTest, WhateverIsChangedInAMessageItMeansWhatParsingItGives) {
  SharedMemories memories;
  ExpectTheSameHoweverChanged(SharedMessages(memories), {memories.stores(), SharedMemories::Me()});
}

TEST(RecallSharedTest, TheMemoryIsLookedUpEveryTime) {
  SharedMemories memories;
  const v1::ApplyRoPERequest leased = LeasedRope(memories, 256);
  v1::ApplyRoPERequest named = leased;
  named.mutable_item()->mutable_tensors(0)->mutable_tensor()->mutable_region()->set_region("named");
  named.mutable_item()->mutable_tensors(0)->mutable_destination()->mutable_region()->set_region(
      "named");
  Remembering server({memories.stores(), SharedMemories::Me()});
  const auto read = [&](const v1::ApplyRoPERequest& request) {
    std::string text = server.Read(ParseApplyRoPE, request.SerializeAsString());
    const int64_t recalled = server.recalled();
    EXPECT_EQ(text, server.Anew(ParseApplyRoPE, request.SerializeAsString()));
    return std::pair(recalled, text);
  };
  for (const v1::ApplyRoPERequest& request : {leased, named}) {
    EXPECT_EQ(read(request).first, 0);
    EXPECT_EQ(read(request).first, 1);
  }
  const std::string before = read(named).second;
  const testing::SharedMemory other(std::string(4096, 'o'));
  const auto kept_mapped = memories.regions().Find("named", SharedMemories::Me(), "x");
  ASSERT_THAT(memories.regions().Unregister("named", SharedMemories::Me()), IsOk());
  EXPECT_THAT(read(named).second, HasSubstr("NOT_FOUND: item.tensors[0].tensor.region.region"));
  ASSERT_THAT(memories.regions().Register("named", {.key = other.key(), .bytes = 4096},
                                          SharedMemories::Me()),
              IsOk());
  EXPECT_THAT(read(named), Pair(1, AllOf(HasSubstr("shared at "), Ne(before))));
  memories.leases().Remove(memories.lease());
  EXPECT_THAT(read(leased), Pair(0, HasSubstr("NOT_FOUND: ")));
}

TEST(RecallSharedTest, ADestinationHasTheShapeOfTheNewPositions) {
  SharedMemories memories;
  Remembering server({memories.stores(), SharedMemories::Me()});
  v1::EncodeRequest request = LeasedEncode(memories, 3);
  server.Read(ParseEncode, request.SerializeAsString());
  auto& range = *request.mutable_item()->mutable_positions()->mutable_range()->mutable_integer();
  for (const auto& [start, count, recalled] : {std::tuple(9, 3, 1), {9, 4, 0}, {9, 2, 0}}) {
    range.set_start(start);
    range.set_count(count);
    const std::string text = server.Read(ParseEncode, request.SerializeAsString());
    EXPECT_EQ(server.recalled(), recalled) << count;
    EXPECT_EQ(text, server.Anew(ParseEncode, request.SerializeAsString()));
  }
}

// Its errors name the item by its place in the batch.
TEST(RecallSharedTest, ABatchRecallsNothingThatIsShared) {
  SharedMemories memories;
  Remembering server({memories.stores(), SharedMemories::Me()});
  const v1::EncodeRequest one = LeasedEncode(memories, 3);
  v1::BatchEncodeRequest batch;
  *batch.add_items() = one.item();
  server.Read(ParseEncode, one.SerializeAsString());
  for (int i = 0; i < 2; ++i) {
    const std::string text = server.Read(ParseBatchEncode, batch.SerializeAsString());
    EXPECT_EQ(server.recalled(), 0);
    EXPECT_EQ(text, server.Anew(ParseBatchEncode, batch.SerializeAsString()));
  }
}

}  // namespace
}  // namespace phasor::rpc
