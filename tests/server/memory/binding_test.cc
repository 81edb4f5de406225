// SPDX-License-Identifier: Apache-2.0
// Tensors in shared memory: found, bounded, and kept from overlapping.
#include "server/memory/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "absl/strings/match.h"
#include "kernels/base/text.h"
#include "tests/support/device_backend.h"
#include "tests/support/device_backends.h"
#include "tests/support/memfd.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"

namespace phasor::memory {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::Memfd;
using ::phasor::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// An item with inputs and outputs of these bytes; an output is computed from the input of its
// index.
engine::Item ItemOf(const std::vector<int64_t>& inputs, const std::vector<int64_t>& outputs) {
  engine::Item item;
  for (const int64_t bytes : inputs) item.inputs.push_back({.slot = {.bytes = bytes}});
  for (const int64_t bytes : outputs) {
    item.outputs.push_back({.slot = {.bytes = bytes, .like_input_bytes = bytes}});
  }
  return item;
}

class BindingTest : public ::testing::Test {
 protected:
  BindingTest() : token_(*store_.Add(memfd_.fd(), "me")) {}

  // FLOAT32 [4, 1, 8], 128 bytes, at `offset`.
  SharedTensor TensorAt(int64_t offset, const std::string& path = "out") const {
    SharedTensor tensor;
    tensor.name = token_;
    tensor.offset = offset;
    tensor.shape = {4, 1, 8};
    tensor.path = path;
    tensor.name_path = path + ".region.region";
    tensor.offset_path = path + ".region.offset_bytes";
    return tensor;
  }
  // Each binds a tensor of an item of its own slots.
  absl::Status Input(const SharedTensor& tensor, int64_t bytes = 128) {
    engine::Item item = ItemOf({bytes}, {});
    return binding_.Input(tensor, 0, &item);
  }
  absl::Status Input(int64_t offset) { return Input(TensorAt(offset, "in")); }
  absl::StatusOr<engine::Destination> Output(const SharedTensor& wanted,
                                             const SharedTensor* input = nullptr,
                                             int64_t bytes = 128) {
    engine::Item item = ItemOf({}, {bytes});
    if (absl::Status status = binding_.Output(wanted, input, 0, &item); !status.ok()) return status;
    return item.outputs[0].place;
  }
  absl::StatusOr<engine::Destination> Cache(const SharedTensor& cache) {
    engine::Item item = ItemOf({}, {128});
    item.outputs[0].slot.like_input_bytes = 32;
    if (absl::Status status = binding_.Cache(cache, 0, &item); !status.ok()) return status;
    return item.outputs[0].place;
  }
  absl::Status Finish() { return binding_.Finish().status(); }

  const Memfd memfd_{int64_t{1000}};
  LeaseStore store_{OwnerLimits{}};
  const std::string token_;
  const CallerMemory memory_{{.leases = &store_}, {}};
  Binding binding_{memory_};
};

TEST_F(BindingTest, AnInputReadInPartDoesNotCountAsAWhole) {
  engine::Item item = ItemOf({128}, {});
  item.inputs[0].slot.reading = Reading::kInPart;
  ASSERT_THAT(binding_.Input(TensorAt(0), 0, &item), IsOk());
  EXPECT_EQ(binding_.Finish()->shared_bytes, 0);
}

TEST_F(BindingTest, InputsAndOutputsAreTheMemoryItself) {
  engine::Item item = ItemOf({128}, {128});
  ASSERT_THAT(binding_.Input(TensorAt(8, "in"), 0, &item), IsOk());
  ASSERT_THAT(binding_.Output(TensorAt(200), nullptr, 0, &item), IsOk());
  const engine::Destination& place = item.outputs[0].place;
  EXPECT_EQ(place.data - item.inputs[0].bytes[0].data(), 192);
  EXPECT_TRUE(item.inputs[0].changing) << "the client can write it at any time";
  EXPECT_FALSE(place.strided);
  EXPECT_EQ(place.region, token_);
  EXPECT_EQ(place.offset_bytes, 200);
  EXPECT_THAT(binding_.EndItem(), IsOk());
  const auto bound = binding_.Finish();
  ASSERT_THAT(bound, IsOk());
  EXPECT_EQ(bound->shared_bytes, 256);
  EXPECT_EQ(bound->copied_bytes(), 0);
  EXPECT_EQ(bound->held.size(), 2u);
}

TEST_F(BindingTest, CachesAreOutputsOfWhichAPartIsWritten) {
  const auto cache = Cache(TensorAt(200, "cache"));
  ASSERT_THAT(cache, IsOk());
  EXPECT_FALSE(cache->strided);
  EXPECT_EQ(cache->offset_bytes, 200);
  EXPECT_THAT(Cache(TensorAt(402, "cache")),
              StatusIs(kInvalid, HasSubstr("cache.region.offset_bytes: 402; must be a multiple")));
  EXPECT_THAT(Cache(TensorAt(900, "cache")), StatusIs(kInvalid, HasSubstr("900")));
  EXPECT_THAT(Input(100), IsOk());
  EXPECT_THAT(binding_.EndItem(), StatusIs(kInvalid, HasSubstr("in: overlaps cache")));
  const auto bound = binding_.Finish();
  ASSERT_THAT(bound, IsOk());
  EXPECT_EQ(bound->shared_bytes, 32 + 128);
}

class NamedRegionTest : public BindingTest {
 protected:
  NamedRegionTest() {
    EXPECT_THAT(regions_.Register("named", {region_.key(), 0, 1000}, {"me"}), IsOk());
  }
  static RegionStoreOptions Enabled() {
    RegionStoreOptions options;
    options.enabled = true;
    return options;
  }
  SharedTensor NamedAt(int64_t offset, const std::string& path) const {
    SharedTensor tensor = TensorAt(offset, path);
    tensor.name = "named";
    return tensor;
  }

  const testing::SharedMemory region_{std::string(1000, 'm')};
  RegionStore regions_{Enabled()};
  const CallerMemory both_{{.leases = &store_, .regions = &regions_}, {"me"}};
};

TEST_F(NamedRegionTest, TensorsAreTheMemoryItself) {
  Binding binding(both_);
  engine::Item item = ItemOf({128}, {64, 64});
  ASSERT_THAT(binding.Input(NamedAt(0, "in"), 0, &item), IsOk());
  ASSERT_THAT(binding.Output(NamedAt(128, "out"), nullptr, 0, &item), IsOk());
  ASSERT_THAT(binding.Cache(NamedAt(192, "cache"), 1, &item), IsOk());
  const std::byte* const begin = item.inputs[0].bytes[0].data();
  EXPECT_EQ(*begin, std::byte{'m'});
  EXPECT_TRUE(item.inputs[0].changing) << "the client can write it at any time";
  EXPECT_EQ(item.outputs[0].place.data - begin, 128);
  EXPECT_EQ(item.outputs[1].place.data - begin, 192);
  ASSERT_THAT(binding.EndItem(), IsOk());
  const auto bound = binding.Finish();
  ASSERT_THAT(bound, IsOk());
  EXPECT_EQ(bound->copied_bytes(), 0);
  EXPECT_EQ(bound->shared_bytes, 256);
}

// Elements are aligned in memory, so the region's own offset counts too.
TEST_F(NamedRegionTest, OutputsBeginAtAnElement) {
  ASSERT_THAT(regions_.Register("odd", {region_.key(), 2, 998}, {"me"}), IsOk());
  SharedTensor output = NamedAt(2, "out");
  for (const auto& [name, offset, fits] :
       {std::tuple("named", 2, false), {"named", 4, true}, {"odd", 4, false}, {"odd", 2, true}}) {
    output.name = name;
    output.offset = offset;
    engine::Item item = ItemOf({}, {64});
    const absl::Status status = Binding(both_).Output(output, nullptr, 0, &item);
    EXPECT_EQ(status.ok(), fits) << name << " " << offset;
    EXPECT_EQ(absl::StrContains(status.message(), "must be a multiple of the"), !fits);
  }
}

TEST_F(NamedRegionTest, TensorsOverlapByTheirOffsets) {
  for (const auto& [offset, fits] : {std::pair<int64_t, bool>{128, true}, {124, false}}) {
    Binding binding(both_);
    engine::Item item = ItemOf({128}, {128});
    ASSERT_THAT(binding.Input(NamedAt(0, "in"), 0, &item), IsOk());
    ASSERT_THAT(binding.Output(NamedAt(offset, "out"), nullptr, 0, &item), IsOk());
    EXPECT_EQ(binding.EndItem().ok(), fits) << offset;
  }
}

TEST_F(NamedRegionTest, WhatTheCallerHasSetAsideIsInsideTheRegion) {
  Binding binding(both_);
  engine::Item item = ItemOf({}, {64});
  SharedTensor output = NamedAt(900, "out");
  output.reserved_bytes = 100;
  EXPECT_THAT(binding.Output(output, nullptr, 0, &item), IsOk());
  output.reserved_bytes = 101;
  EXPECT_THAT(binding.Output(output, nullptr, 0, &item),
              StatusIs(kInvalid, HasSubstr("out.region.offset_bytes: 101 bytes from 900")));
}

// Leased memory that is changed already cannot be tried again when a named region fails.
TEST_F(NamedRegionTest, TransfersKnowWhatIsInPlaceElsewhere) {
  for (const bool in_place : {false, true}) {
    Binding binding(both_);
    engine::Item item = ItemOf({128}, {128, 128});
    const SharedTensor input = TensorAt(in_place ? 0 : 512, "in");
    ASSERT_THAT(binding.Input(input, 0, &item), IsOk());
    ASSERT_THAT(binding.Output(TensorAt(0, "q"), &input, 0, &item), IsOk());
    ASSERT_THAT(binding.Output(NamedAt(0, "k"), nullptr, 1, &item), IsOk());
    ASSERT_THAT(binding.EndItem(), IsOk());
    region_.Resize(100);
    engine::BufferPool pool(0);
    engine::Result result;
    result.buffer = pool.Get(128);
    result.items.resize(1);
    result.items[0].outputs = {{0, 0}, {0, 0}};
    binding.Finish()->transfers->Store(result);
    EXPECT_EQ(result.items[0].status.code(),
              in_place ? absl::StatusCode::kAborted : absl::StatusCode::kInvalidArgument);
    region_.Resize(1000);
  }
}

TEST_F(BindingTest, WhatIsNotThereIsRefused) {
  EXPECT_THAT(Input(873), StatusIs(kInvalid, HasSubstr("in.region.offset_bytes: 128 bytes from")));
  EXPECT_THAT(Input(-1), StatusIs(kInvalid, HasSubstr("within the 1000 bytes of the region")));
  EXPECT_THAT(Output(TensorAt(873)), StatusIs(kInvalid, HasSubstr("out.region.offset_bytes")));
  SharedTensor unknown = TensorAt(0, "in");
  unknown.name = "x";
  EXPECT_THAT(Input(unknown),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("in.region.region: no such lease")));
  const CallerMemory none;
  engine::Item item = ItemOf({128}, {});
  EXPECT_THAT(Binding(none).Input(unknown, 0, &item),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--lease-socket")));
  unknown.on_device = true;
  EXPECT_THAT(Binding(none).Input(unknown, 0, &item),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("device memory is off")));
}

TEST_F(BindingTest, StridesAreThoseOfTheInput) {
  SharedTensor wanted = TensorAt(0);
  wanted.strides = {8};
  EXPECT_THAT(
      Output(wanted),
      StatusIs(kInvalid, HasSubstr("out.strides: other strides than the input's; must be empty")));
}

TEST_F(BindingTest, InPlaceIsTheSamePlaceWithTheSameStrides) {
  SharedTensor input = TensorAt(0, "in");
  ASSERT_THAT(Input(0), IsOk());
  EXPECT_THAT(Output(TensorAt(0), &input), IsOk());
  EXPECT_THAT(binding_.EndItem(), IsOk());
  input.strides = {8, 8, 1};
  EXPECT_THAT(
      Output(TensorAt(0), &input),
      StatusIs(kInvalid,
               HasSubstr("out.strides: other strides than the input's, whose place it is; must")));
  SharedTensor same = input;
  same.path = "out";
  EXPECT_TRUE(Output(same, &input)->strided);
}

TEST_F(BindingTest, OutputsOverlapNothing) {
  ASSERT_THAT(Input(0), IsOk());
  ASSERT_THAT(Input(64), IsOk());  // inputs may
  ASSERT_THAT(Output(TensorAt(188)), IsOk());
  EXPECT_THAT(binding_.EndItem(), StatusIs(kInvalid, HasSubstr("out: overlaps in")));
}

TEST_F(BindingTest, AnItemThatFailedUsesNothing) {
  ASSERT_THAT(Output(TensorAt(0)), IsOk());
  EXPECT_EQ(binding_.EndItem(absl::NotFoundError("gone")), absl::NotFoundError("gone"));
  ASSERT_THAT(Output(TensorAt(0)), IsOk());
  EXPECT_THAT(binding_.EndItem(), IsOk());
  EXPECT_THAT(Finish(), IsOk());
}

TEST_F(BindingTest, OutputsBeginAtAnElement) {
  EXPECT_THAT(Output(TensorAt(1)),
              StatusIs(kInvalid, HasSubstr("out.region.offset_bytes: 1; must be a multiple of")));
}

class DevicesBindingTest : public BindingTest {
 protected:
  DevicesBindingTest() {
    for (size_t i = 0; i < gpus_.size(); ++i) {
      exports_.push_back(gpus_.device(i).Export(4096));
      EXPECT_THAT(
          devices_.Register(StrCat("gpu", i), {.handle = exports_[i]->handle(), .bytes = 4096},
                            {"me"}, {}, {}),
          IsOk());
    }
  }
  SharedTensor On(int device, int64_t offset, const std::string& path) const {
    SharedTensor tensor = TensorAt(offset, path);
    tensor.name = StrCat("gpu", device);
    tensor.on_device = true;
    return tensor;
  }
  // An item that the backend may run on a device, all but its last input.
  static engine::Item DeviceItem() {
    engine::Item item = ItemOf({128, 128, 128}, {128});
    item.inputs[0].slot.on_device = item.inputs[1].slot.on_device = true;
    item.outputs[0].slot.on_device = true;
    return item;
  }

  testing::DeviceBackends gpus_{2, testing::DeviceBackend::Options()};
  std::vector<std::shared_ptr<testing::FakeExport>> exports_;
  DeviceRegionStore devices_{gpus_.backend().devices(), {.enabled = true}, Clock::Real()};
  const CallerMemory on_devices_{{.devices = &devices_}, {"me"}};
  Binding on_device_{on_devices_};
};

TEST_F(DevicesBindingTest, TensorsOfAnItemAreOnOneDevice) {
  engine::Item item = DeviceItem();
  ASSERT_THAT(on_device_.Input(On(1, 0, "q"), 0, &item), IsOk());
  EXPECT_THAT(on_device_.Input(On(0, 0, "k"), 1, &item),
              StatusIs(kInvalid, AllOf(HasSubstr("k.region.region: region 'gpu0' is on device 0 ("),
                                       HasSubstr("q on device 1 ("))));
  EXPECT_THAT(on_device_.Output(On(0, 512, "out"), nullptr, 0, &item),
              StatusIs(kInvalid, HasSubstr("out.region.region: ")));
  EXPECT_THAT(on_device_.Cache(On(0, 512, "cache"), 0, &item),
              StatusIs(kInvalid, HasSubstr("cache.region.region: ")));
  ASSERT_THAT(on_device_.Output(On(1, 512, "out"), nullptr, 0, &item), IsOk());
  ASSERT_THAT(on_device_.EndItem(), IsOk());
  engine::Item other = DeviceItem();
  EXPECT_THAT(on_device_.Input(On(0, 0, "q"), 0, &other), IsOk()) << "each item on its own";
}

TEST_F(DevicesBindingTest, WhatIsCopiedMayBeOnAnotherDevice) {
  engine::Item item = DeviceItem();
  ASSERT_THAT(on_device_.Input(On(1, 0, "q"), 0, &item), IsOk());
  ASSERT_THAT(on_device_.Input(On(0, 0, "positions"), 2, &item), IsOk());
  ASSERT_THAT(on_device_.EndItem(), IsOk());
  EXPECT_EQ(on_device_.Finish()->copied_bytes(), 128);
}

// A long input under several short ones hides nothing.
TEST_F(BindingTest, EveryInputBeforeAnOutputCounts) {
  ASSERT_THAT(Input(TensorAt(0, "long"), 900), IsOk());
  ASSERT_THAT(Input(10), IsOk());
  ASSERT_THAT(Output(TensorAt(500)), IsOk());
  EXPECT_THAT(binding_.EndItem(), StatusIs(kInvalid, HasSubstr("out: overlaps long")));
}

// q [4, 2, 8] and k [4, 1, 8] in rows of 24 and something.
TEST_F(BindingTest, PartsOfRowsMayInterleave) {
  const auto part = [&](int64_t first, int64_t heads, int64_t row, const std::string& path) {
    SharedTensor tensor = TensorAt(first * 4, path);
    tensor.shape[1] = heads;
    tensor.strides = {row, 8, 1};
    return tensor;
  };
  const auto spans = [](int64_t heads, int64_t row) { return (3 * row + heads * 8) * 4; };
  for (const int64_t row : {24, 32}) {
    for (const auto& [k_at, fits] : {std::pair<int64_t, bool>{16, true}, {15, false}, {8, false}}) {
      Binding binding(memory_);
      const SharedTensor q = part(0, 2, row, "q"), k = part(k_at, 1, row, "k");
      engine::Item item = ItemOf({spans(2, row), spans(1, row)}, {spans(2, row), spans(1, row)});
      ASSERT_THAT(binding.Input(q, 0, &item), IsOk());
      ASSERT_THAT(binding.Input(k, 1, &item), IsOk());
      ASSERT_THAT(binding.Output(q, &q, 0, &item), IsOk());
      ASSERT_THAT(binding.Output(k, &k, 1, &item), IsOk());
      EXPECT_EQ(binding.EndItem().ok(), fits) << row << " " << k_at;
    }
  }
}

TEST_F(BindingTest, ItemsMustNotOverlapEachOther) {
  ASSERT_THAT(Input(0), IsOk());
  ASSERT_THAT(Output(TensorAt(200)), IsOk());
  ASSERT_THAT(binding_.EndItem(), IsOk());
  ASSERT_THAT(Input(0), IsOk());
  ASSERT_THAT(binding_.EndItem(), IsOk());
  ASSERT_THAT(Output(TensorAt(100)), IsOk());
  ASSERT_THAT(binding_.EndItem(), IsOk());
  EXPECT_THAT(Finish(), StatusIs(kInvalid, HasSubstr("out: overlaps in")));
}

// The input of another item counts even where the item's own reaches farther.
TEST_F(BindingTest, AnItemsOwnInputHidesNoOthers) {
  ASSERT_THAT(Input(20), IsOk());
  ASSERT_THAT(binding_.EndItem(), IsOk());
  SharedTensor strided = TensorAt(0, "own"), between = TensorAt(64);
  strided.strides = between.strides = {48, 8, 1};
  ASSERT_THAT(Input(strided, (3 * 48 + 8) * 4), IsOk());
  ASSERT_THAT(Output(between, &between, (3 * 48 + 8) * 4), IsOk());
  ASSERT_THAT(binding_.EndItem(), IsOk());
  EXPECT_THAT(Finish(), StatusIs(kInvalid, HasSubstr("out: overlaps in")));
}

}  // namespace
}  // namespace phasor::memory
