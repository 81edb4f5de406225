// SPDX-License-Identifier: Apache-2.0
#include "server/api/shared_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/memfd.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::Memfd;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

class SharedTensorsTest : public ::testing::Test {
 protected:
  SharedTensorsTest() : token_(*store_.Add(memfd_.fd(), "me")) {}

  // FLOAT32 [4, 1, 8], 128 bytes, at `offset`.
  v1::TensorSpec TensorAt(int64_t offset) const {
    v1::TensorSpec tensor;
    tensor.set_dtype(v1::DTYPE_FLOAT32);
    for (const int64_t extent : {4, 1, 8}) tensor.add_shape(extent);
    tensor.mutable_region()->set_region(token_);
    tensor.mutable_region()->set_offset_bytes(offset);
    return tensor;
  }
  absl::Status Input(int64_t offset) { return shared_.Input(TensorAt(offset), 128, "in").status(); }
  absl::StatusOr<engine::Destination> Output(const v1::TensorSpec& wanted,
                                             const v1::TensorSpec* input = nullptr) {
    v1::TensorSpec output = TensorAt(0);
    output.clear_region();
    return shared_.Output(wanted, output, {input, 128, 128}, "out");
  }

  const Memfd memfd_{int64_t{1000}};
  memory::LeaseStore store_{memory::OwnerLimits{}};
  const std::string token_;
  const SharedSources sources_{&store_};
  SharedTensors shared_{sources_};
};

TEST_F(SharedTensorsTest, InputsAndOutputsAreTheMemoryItself) {
  const auto input = shared_.Input(TensorAt(8), 128, "in");
  ASSERT_THAT(input, IsOk());
  const auto output = Output(TensorAt(200));
  ASSERT_THAT(output, IsOk());
  EXPECT_EQ(output->data - input->data(), 192);
  EXPECT_FALSE(output->strided);
  EXPECT_EQ(output->region, token_);
  EXPECT_EQ(output->offset_bytes, 200);
  EXPECT_THAT(shared_.EndItem(), IsOk());
  EXPECT_EQ(shared_.bytes(), 256);
  EXPECT_EQ(shared_.TakeHeld().size(), 2u);
}

TEST_F(SharedTensorsTest, CachesAreOutputsOfWhichAPartIsWritten) {
  const auto cache = shared_.Cache(TensorAt(200), 128, 32, "cache");
  ASSERT_THAT(cache, IsOk());
  EXPECT_FALSE(cache->strided);
  EXPECT_EQ(cache->offset_bytes, 200);
  EXPECT_EQ(shared_.bytes(), 32);
  EXPECT_THAT(shared_.Cache(TensorAt(402), 128, 32, "cache"),
              StatusIs(kInvalid, HasSubstr("cache.region.offset_bytes: 402, must be a multiple")));
  EXPECT_THAT(shared_.Cache(TensorAt(900), 128, 32, "cache"), StatusIs(kInvalid, HasSubstr("900")));
  EXPECT_THAT(Input(100), IsOk());
  EXPECT_THAT(shared_.EndItem(), StatusIs(kInvalid, HasSubstr("in: overlaps cache")));
}

// What would be written back is the whole cache, over what others wrote meanwhile.
TEST_F(SharedTensorsTest, CachesAreNotInNamedRegions) {
  const testing::SharedMemory memory(std::string(1000, 'm'));
  memory::RegionStoreOptions options;
  options.enabled = true;
  memory::RegionStore store(options);
  const memory::RegionCaller caller{.peer = "me"};
  ASSERT_THAT(store.Register("pages", {memory.key(), 0, 1000}, caller), IsOk());
  const SharedSources sources{nullptr, {&store, caller}};
  v1::TensorSpec cache = TensorAt(0);
  cache.mutable_region()->set_region("pages");
  EXPECT_THAT(SharedTensors(sources).Cache(cache, 128, 32, "cache"),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("cache.region.region: a named region, caches must be in leased")));
}

// Leased memory that is changed already cannot be tried again when a named region fails.
TEST_F(SharedTensorsTest, CopiesKnowWhatIsInPlaceElsewhere) {
  const testing::SharedMemory memory(std::string(128, 'x'));
  memory::RegionStoreOptions options;
  options.enabled = true;
  memory::RegionStore store(options);
  ASSERT_THAT(store.Register("named", {memory.key(), 0, 128}, {"me"}), IsOk());
  const SharedSources sources{&store_, {&store, {"me"}}};
  for (const bool in_place : {false, true}) {
    SharedTensors shared(sources);
    v1::TensorSpec output = TensorAt(0), named = TensorAt(0);
    output.clear_region();
    named.mutable_region()->set_region("named");
    const v1::TensorSpec leased = TensorAt(0), input = TensorAt(in_place ? 0 : 512);
    ASSERT_THAT(shared.Input(input, 128, "in"), IsOk());
    ASSERT_THAT(shared.Output(leased, output, {&input, 128, 128}, "q"), IsOk());
    ASSERT_THAT(shared.Output(named, output, {nullptr, 128, 128}, "k"), IsOk());
    ASSERT_THAT(shared.EndItem(), IsOk());
    memory.Resize(100);
    engine::ItemResult result;
    shared.TakeCopies()->Store({&result, 1});
    EXPECT_EQ(result.status.code(),
              in_place ? absl::StatusCode::kAborted : absl::StatusCode::kInvalidArgument);
    memory.Resize(128);
  }
}

TEST_F(SharedTensorsTest, WhatIsNotThereIsRefused) {
  EXPECT_THAT(Input(873), StatusIs(kInvalid, HasSubstr("in.region.offset_bytes: 128 bytes from")));
  EXPECT_THAT(Input(-1), StatusIs(kInvalid, HasSubstr("within the region's 1000")));
  EXPECT_THAT(Output(TensorAt(873)), StatusIs(kInvalid, HasSubstr("out.region.offset_bytes")));
  v1::TensorSpec unknown;
  unknown.mutable_region()->set_region("x");
  EXPECT_THAT(shared_.Input(unknown, 1, "in"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("in.region.region: no such lease")));
  EXPECT_THAT(SharedTensors(SharedSources()).Input(unknown, 1, "in"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--lease-socket")));
}

TEST_F(SharedTensorsTest, ADestinationIsARegionOfTheResultsTypeAndShape) {
  v1::TensorSpec wanted = TensorAt(0);
  wanted.clear_region();
  EXPECT_THAT(Output(wanted), StatusIs(kInvalid, HasSubstr("out.region: not set")));
  wanted = TensorAt(0);
  wanted.set_dtype(v1::DTYPE_FLOAT16);
  EXPECT_THAT(Output(wanted), StatusIs(kInvalid, HasSubstr("out: must have the dtype and shape")));
  wanted = TensorAt(0);
  wanted.set_shape(0, 3);
  EXPECT_THAT(Output(wanted), StatusIs(kInvalid, HasSubstr("out: must have the dtype and shape")));
  wanted = TensorAt(0);
  wanted.add_strides(8);
  EXPECT_THAT(Output(wanted), StatusIs(kInvalid, HasSubstr("out.strides: must be empty")));
}

TEST_F(SharedTensorsTest, InPlaceIsTheSamePlaceWithTheSameStrides) {
  v1::TensorSpec input = TensorAt(0);
  ASSERT_THAT(Input(0), IsOk());
  EXPECT_THAT(Output(TensorAt(0), &input), IsOk());
  EXPECT_THAT(shared_.EndItem(), IsOk());
  for (const int64_t stride : {8, 8, 1}) input.add_strides(stride);
  EXPECT_THAT(Output(TensorAt(0), &input),
              StatusIs(kInvalid, HasSubstr("out.strides: must be those of the input")));
  EXPECT_TRUE(Output(input, &input)->strided);
}

TEST_F(SharedTensorsTest, OutputsOverlapNothing) {
  ASSERT_THAT(Input(0), IsOk());
  ASSERT_THAT(Input(64), IsOk());  // inputs may
  ASSERT_THAT(Output(TensorAt(188)), IsOk());
  EXPECT_THAT(shared_.EndItem(), StatusIs(kInvalid, HasSubstr("out: overlaps in")));
}

TEST_F(SharedTensorsTest, AnItemThatFailedUsesNothing) {
  ASSERT_THAT(Output(TensorAt(0)), IsOk());
  EXPECT_EQ(shared_.EndItem(absl::NotFoundError("gone")), absl::NotFoundError("gone"));
  ASSERT_THAT(Output(TensorAt(0)), IsOk());
  EXPECT_THAT(shared_.EndItem(), IsOk());
  EXPECT_THAT(shared_.CheckItems(), IsOk());
}

TEST_F(SharedTensorsTest, OutputsBeginAtAnElement) {
  EXPECT_THAT(Output(TensorAt(1)),
              StatusIs(kInvalid, HasSubstr("out.region.offset_bytes: 1, must be a multiple of")));
}

// A long input under several short ones hides nothing.
TEST_F(SharedTensorsTest, EveryInputBeforeAnOutputCounts) {
  ASSERT_THAT(shared_.Input(TensorAt(0), 900, "long"), IsOk());
  ASSERT_THAT(Input(10), IsOk());
  ASSERT_THAT(Output(TensorAt(500)), IsOk());
  EXPECT_THAT(shared_.EndItem(), StatusIs(kInvalid, HasSubstr("out: overlaps long")));
}

// q [4, 2, 8] and k [4, 1, 8] in rows of 24 and something.
TEST_F(SharedTensorsTest, PartsOfRowsMayInterleave) {
  const auto part = [&](int64_t first, int64_t heads, int64_t row) {
    v1::TensorSpec tensor = TensorAt(first * 4);
    tensor.set_shape(1, heads);
    for (const int64_t stride : {row, int64_t{8}, int64_t{1}}) tensor.add_strides(stride);
    return tensor;
  };
  const auto spans = [](int64_t heads, int64_t row) { return (3 * row + heads * 8) * 4; };
  for (const int64_t row : {24, 32}) {
    for (const auto& [k_at, fits] : {std::pair<int64_t, bool>{16, true}, {15, false}, {8, false}}) {
      SharedTensors shared(sources_);
      const v1::TensorSpec q = part(0, 2, row), k = part(k_at, 1, row);
      ASSERT_THAT(shared.Input(q, spans(2, row), "q"), IsOk());
      ASSERT_THAT(shared.Input(k, spans(1, row), "k"), IsOk());
      ASSERT_THAT(shared.Output(q, q, {&q, spans(2, row), 256}, "q_out"), IsOk());
      ASSERT_THAT(shared.Output(k, k, {&k, spans(1, row), 128}, "k_out"), IsOk());
      EXPECT_EQ(shared.EndItem().ok(), fits) << row << " " << k_at;
    }
  }
}

TEST_F(SharedTensorsTest, ItemsMustNotOverlapEachOther) {
  ASSERT_THAT(Input(0), IsOk());
  ASSERT_THAT(Output(TensorAt(200)), IsOk());
  ASSERT_THAT(shared_.EndItem(), IsOk());
  ASSERT_THAT(Input(0), IsOk());
  ASSERT_THAT(shared_.EndItem(), IsOk());
  ASSERT_THAT(shared_.CheckItems(), IsOk());
  ASSERT_THAT(Output(TensorAt(100)), IsOk());
  ASSERT_THAT(shared_.EndItem(), IsOk());
  EXPECT_THAT(shared_.CheckItems(), StatusIs(kInvalid, HasSubstr("out: overlaps in")));
}

// The input of another item counts even where the item's own reaches farther.
TEST_F(SharedTensorsTest, AnItemsOwnInputHidesNoOthers) {
  ASSERT_THAT(Input(20), IsOk());
  ASSERT_THAT(shared_.EndItem(), IsOk());
  v1::TensorSpec strided = TensorAt(0);
  for (const int64_t stride : {48, 8, 1}) strided.add_strides(stride);
  ASSERT_THAT(shared_.Input(strided, (3 * 48 + 8) * 4, "own"), IsOk());
  v1::TensorSpec between = TensorAt(64);
  for (const int64_t stride : {48, 8, 1}) between.add_strides(stride);
  ASSERT_THAT(shared_.Output(between, between, {&between, (3 * 48 + 8) * 4, 128}, "out"), IsOk());
  ASSERT_THAT(shared_.EndItem(), IsOk());
  EXPECT_THAT(shared_.CheckItems(), StatusIs(kInvalid, HasSubstr("out: overlaps in")));
}

}  // namespace
}  // namespace phasor::rpc
