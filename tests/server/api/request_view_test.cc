// SPDX-License-Identifier: Apache-2.0
// Tests that every class of malformed request gets its code and the path of its field, and that
// valid requests get their payload in the documented order.
#include "server/api/request_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "kernels/request/paged_cache.h"
#include "server/memory/lease_store.h"
#include "tests/support/memfd.h"
#include "tests/support/requests.h"
#include "tests/support/status_matchers.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::EncodeOf;
using ::phasor::testing::EncodeRequestOf;
using ::phasor::testing::IsOk;
using ::phasor::testing::RopeOf;
using ::phasor::testing::RopeRequestOf;
using ::phasor::testing::SetShape;
using ::phasor::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

using ::phasor::testing::kExhausted;
using ::phasor::testing::kInvalid;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

using Parse = absl::StatusOr<RequestView> (*)(const WalkedMessage&, const ViewContext&);

// Serialized bytes and what was parsed from them, which borrows them.
class Viewed {
 public:
  Viewed(Parse parse, std::string bytes, int64_t max_message_bytes = 1 << 20,
         int64_t max_batch_items = 8)
      : bytes_(std::move(bytes)) {
    const absl::Span<const std::byte> piece(reinterpret_cast<const std::byte*>(bytes_.data()),
                                            bytes_.size());
    const auto walked = WalkMessage({piece}, {});
    if (!walked.ok()) {
      view_ = walked.status();
      return;
    }
    const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
    view_ = parse(*walked, {plans, "cpu", max_message_bytes, max_batch_items});
  }

  const absl::StatusOr<RequestView>& view() const { return view_; }
  const absl::Status& status() const { return view_.status(); }
  const engine::Item& item(size_t i) const { return view_->items[i]; }
  absl::Status item_status(size_t i) const { return item(i).status; }

 private:
  std::string bytes_;
  absl::StatusOr<RequestView> view_ = absl::UnknownError("not parsed");
};

// The bytes of an input.
std::string Joined(const engine::Item& item, Role role, int index = 0) {
  std::string bytes;
  for (const auto& segment : item.Find(role, index)->bytes) {
    bytes.append(reinterpret_cast<const char*>(segment.data()), segment.size());
  }
  return bytes;
}

template <typename Message>
Message BatchOf(std::initializer_list<int64_t> counts);

template <>
v1::BatchEncodeRequest BatchOf(std::initializer_list<int64_t> counts) {
  v1::BatchEncodeRequest batch;
  for (const int64_t count : counts) *batch.add_items() = EncodeOf(count);
  return batch;
}

template <>
v1::BatchApplyRoPERequest BatchOf(std::initializer_list<int64_t> counts) {
  v1::BatchApplyRoPERequest batch;
  for (const int64_t tokens : counts) {
    const v1::ApplyRoPERequest request = RopeRequestOf(tokens);
    *batch.add_items() = request.item();
    batch.mutable_raw()->MergeFrom(request.raw());
  }
  return batch;
}

// Payload ----------------------------------------------------------------------------------------

TEST(ParseEncodeTest, GivesPositionsAndThenAddToTheirEntries) {
  v1::EncodeRequest request = EncodeRequestOf(2);
  SetShape(request.mutable_item()->mutable_positions()->mutable_tensor(), v1::DTYPE_INT32, {2});
  SetShape(request.mutable_item()->mutable_add_to(), v1::DTYPE_FLOAT32, {2, 8});
  request.add_raw(std::string(8, 'p'));
  request.add_raw(std::string(64, 'e'));
  const Viewed viewed(ParseEncode, request.SerializeAsString());
  ASSERT_THAT(viewed.status(), IsOk());
  const engine::Item& item = viewed.item(0);
  EXPECT_EQ(Joined(item, Role::kPositions), std::string(8, 'p'));
  EXPECT_EQ(Joined(item, Role::kAddTo), std::string(64, 'e'));
  EXPECT_EQ(viewed.view()->response_bytes, 64);
}

TEST(ParseApplyRoPETest, GivesPositionsTensorsAndFromPositionsTheirEntriesInThatOrder) {
  v1::ApplyRoPERequest request = RopeRequestOf(2);
  request.clear_raw();
  request.mutable_item()->set_direction(v1::DIRECTION_DELTA);
  SetShape(request.mutable_item()->mutable_positions()->mutable_tensor(), v1::DTYPE_INT32, {2});
  SetShape(request.mutable_item()->mutable_from_positions()->mutable_tensor(), v1::DTYPE_INT64,
           {2});
  const std::string entries[] = {std::string(8, 'p'), std::string(128, 'q'), std::string(64, 'k'),
                                 std::string(16, 'f')};
  for (const std::string& entry : entries) request.add_raw(entry);
  const Viewed viewed(ParseApplyRoPE, request.SerializeAsString());
  ASSERT_THAT(viewed.status(), IsOk());
  const engine::Item& item = viewed.item(0);
  ASSERT_EQ(item.inputs.size(), 4u);
  EXPECT_EQ(Joined(item, Role::kPositions), entries[0]);
  EXPECT_EQ(Joined(item, Role::kTensor, 0), entries[1]);
  EXPECT_EQ(Joined(item, Role::kTensor, 1), entries[2]);
  EXPECT_EQ(Joined(item, Role::kFromPositions), entries[3]);
  EXPECT_EQ(viewed.view()->response_bytes, 192);
}

TEST(ParseEncodeTest, ZeroPositionsAreValidAndEmpty) {
  const Viewed viewed(ParseEncode, EncodeRequestOf(0).SerializeAsString());
  ASSERT_THAT(viewed.status(), IsOk());
  EXPECT_EQ(viewed.view()->response_bytes, 0);
  EXPECT_EQ(viewed.view()->items.size(), 1u);
}

TEST(ParseApplyRoPETest, ZeroTokensTakeEmptyEntries) {
  const Viewed viewed(ParseApplyRoPE, RopeRequestOf(0).SerializeAsString());
  ASSERT_THAT(viewed.status(), IsOk());
  EXPECT_EQ(viewed.view()->response_bytes, 0);
}

// Errors of one item -----------------------------------------------------------------------------

struct EncodeCase {
  std::string name;
  absl::StatusCode code;
  std::string message;
  std::function<void(v1::EncodeRequest*)> spoil;
};

class ParseEncodeErrorTest : public ::testing::TestWithParam<EncodeCase> {};

TEST_P(ParseEncodeErrorTest, HasItsCodeAndPath) {
  v1::EncodeRequest request = EncodeRequestOf(2);
  GetParam().spoil(&request);
  EXPECT_THAT(Viewed(ParseEncode, request.SerializeAsString()).status(),
              StatusIs(GetParam().code, HasSubstr(GetParam().message)));
}

v1::IntegerRange* RangeOf(v1::EncodeRequest* request) {
  return request->mutable_item()->mutable_positions()->mutable_range()->mutable_integer();
}

v1::TensorSpec* PositionsOf(v1::EncodeRequest* request) {
  return request->mutable_item()->mutable_positions()->mutable_tensor();
}

INSTANTIATE_TEST_SUITE_P(
    Classes, ParseEncodeErrorTest,
    ::testing::Values(
        EncodeCase{"NoItem", kInvalid, "item: not set", [](auto* r) { r->clear_item(); }},
        EncodeCase{
            "UnknownEnum", kInvalid, "item.spec.order: unknown value 12",
            [](auto* r) { r->mutable_item()->mutable_spec()->set_order(v1::TrigOrder(12)); }},
        EncodeCase{"NanBase", kInvalid, "item.spec.rope_theta: ",
                   [](auto* r) {
                     r->mutable_item()->mutable_spec()->set_rope_theta(
                         std::numeric_limits<double>::quiet_NaN());
                   }},
        EncodeCase{"OddWidth", kInvalid, "item.spec.dim: ",
                   [](auto* r) { r->mutable_item()->mutable_spec()->set_dim(7); }},
        EncodeCase{"ZeroWidth", kInvalid, "item.spec.dim: ",
                   [](auto* r) { r->mutable_item()->mutable_spec()->set_dim(0); }},
        EncodeCase{"HugeWidth", kInvalid, "item.spec.dim: ",
                   [](auto* r) {
                     r->mutable_item()->mutable_spec()->set_dim(
                         std::numeric_limits<int64_t>::max());
                   }},
        EncodeCase{"UnknownPreset", absl::StatusCode::kNotFound, "item.spec.preset",
                   [](auto* r) { r->mutable_item()->mutable_spec()->set_preset("nobody"); }},
        EncodeCase{"ConfigJson", kInvalid, "item.spec.config_json.model_type",
                   [](auto* r) { r->mutable_item()->mutable_spec()->set_config_json("{}"); }},
        EncodeCase{"NegativeCount", kInvalid, "item.positions",
                   [](auto* r) { RangeOf(r)->set_count(-1); }},
        EncodeCase{"PositionsBeyond2To63", kInvalid, "item.positions",
                   [](auto* r) { RangeOf(r)->set_start(std::numeric_limits<int64_t>::max()); }},
        EncodeCase{"RealPositionOf2To63", kInvalid, "item.positions",
                   [](auto* r) {
                     auto* real =
                         r->mutable_item()->mutable_positions()->mutable_range()->mutable_real();
                     real->set_start(0x1p63);
                     real->set_count(1);
                   }},
        EncodeCase{"Bfloat16Positions", kInvalid, "item.positions",
                   [](auto* r) {
                     SetShape(PositionsOf(r), v1::DTYPE_BFLOAT16, {2});
                     r->add_raw("0123");
                   }},
        EncodeCase{"NegativeExtent", kInvalid, "item.positions",
                   [](auto* r) { SetShape(PositionsOf(r), v1::DTYPE_INT32, {-2}); }},
        EncodeCase{
            "ShapeTimesDtypeOverflows", kInvalid, "item.positions",
            [](auto* r) {
              SetShape(PositionsOf(r), v1::DTYPE_INT64, {int64_t{1} << 40, int64_t{1} << 40});
            }},
        EncodeCase{"ResponseOfTerabytes", kExhausted, "item: the response is too large",
                   [](auto* r) { RangeOf(r)->set_count(int64_t{1} << 36); }},
        EncodeCase{"PositionsTooShort", kInvalid,
                   "item.positions.tensor: raw[0] has 7 bytes; must have 8 for INT32 [2]",
                   [](auto* r) {
                     SetShape(PositionsOf(r), v1::DTYPE_INT32, {2});
                     r->add_raw("0123456");
                   }},
        EncodeCase{"ClaimOf3GiBWith10Bytes", kInvalid, "raw[0] has 10 bytes; must have 3221225472",
                   [](auto* r) {
                     r->mutable_item()->mutable_spec()->set_dim(2);
                     r->mutable_item()->set_output_dtype(v1::DTYPE_BFLOAT16);
                     SetShape(PositionsOf(r), v1::DTYPE_INT64, {3 << 27});
                     r->add_raw("0123456789");
                   }},
        EncodeCase{"TooFewEntries", kInvalid, "raw: 0 entries; must be 1",
                   [](auto* r) { SetShape(PositionsOf(r), v1::DTYPE_INT32, {2}); }},
        EncodeCase{"TooManyEntries", kInvalid, "raw: 1 entries; must be 0",
                   [](auto* r) { r->add_raw(""); }},
        EncodeCase{"IntegerOutput", kInvalid, "item.output_dtype",
                   [](auto* r) { r->mutable_item()->set_output_dtype(v1::DTYPE_INT32); }},
        EncodeCase{"AddToOfAnotherShape", kInvalid, "item.add_to.shape",
                   [](auto* r) {
                     SetShape(r->mutable_item()->mutable_add_to(), v1::DTYPE_FLOAT32, {2, 4});
                     r->add_raw(std::string(32, 'e'));
                   }},
        EncodeCase{"BackendPin", absl::StatusCode::kFailedPrecondition,
                   "item.pins.backend: 'cuda' does not run here; must be 'cpu' or empty",
                   [](auto* r) { r->mutable_item()->mutable_pins()->set_backend("cuda"); }},
        EncodeCase{"FingerprintPin", absl::StatusCode::kFailedPrecondition,
                   "item.pins.spec_fingerprint",
                   [](auto* r) { r->mutable_item()->mutable_pins()->set_spec_fingerprint("00"); }}),
    [](const auto& test) { return test.param.name; });

TEST(ParseEncodeTest, BackendPinOfThisServerPasses) {
  v1::EncodeRequest request = EncodeRequestOf(2);
  request.mutable_item()->mutable_pins()->set_backend("cpu");
  EXPECT_THAT(Viewed(ParseEncode, request.SerializeAsString()).status(), IsOk());
}

struct RopeCase {
  std::string name;
  absl::StatusCode code;
  std::string message;
  std::function<void(v1::ApplyRoPERequest*)> spoil;
};

class ParseApplyRoPEErrorTest : public ::testing::TestWithParam<RopeCase> {};

TEST_P(ParseApplyRoPEErrorTest, HasItsCodeAndPath) {
  v1::ApplyRoPERequest request = RopeRequestOf(4);
  ASSERT_THAT(Viewed(ParseApplyRoPE, request.SerializeAsString()).status(), IsOk());
  GetParam().spoil(&request);
  EXPECT_THAT(Viewed(ParseApplyRoPE, request.SerializeAsString()).status(),
              StatusIs(GetParam().code, HasSubstr(GetParam().message)));
}

v1::TensorSpec* Tensor(v1::ApplyRoPERequest* request, int i) {
  return request->mutable_item()->mutable_tensors(i)->mutable_tensor();
}

INSTANTIATE_TEST_SUITE_P(
    Classes, ParseApplyRoPEErrorTest,
    ::testing::Values(
        RopeCase{"OddRotaryDim", kInvalid, "item.spec.rotary_dim: ",
                 [](auto* r) { r->mutable_item()->mutable_spec()->set_rotary_dim(3); }},
        RopeCase{"ZeroHeadDim", kInvalid, "item.tensors[0].tensor.shape[2]: 0",
                 [](auto* r) { Tensor(r, 0)->set_shape(2, 0); }},
        RopeCase{"NegativeHeads", kInvalid, "item.tensors[1].tensor.shape[1]: -1",
                 [](auto* r) { Tensor(r, 1)->set_shape(1, -1); }},
        RopeCase{
            "ShapeTimesDtypeOverflows", kInvalid, "item.tensors[0].tensor: shape times",
            [](auto* r) {
              SetShape(Tensor(r, 0), v1::DTYPE_FLOAT32, {int64_t{1} << 40, int64_t{1} << 40, 8});
            }},
        RopeCase{"RankOfTwo", kInvalid, "item.tensors[0].tensor.shape: 2 dimensions",
                 [](auto* r) {
                   SetShape(Tensor(r, 0), v1::DTYPE_FLOAT32, {4, 8});
                 }},
        RopeCase{"NoTensors", kInvalid, "item.tensors: 0 tensors",
                 [](auto* r) { r->mutable_item()->clear_tensors(); }},
        RopeCase{"IntegerTensor", kInvalid, "item.tensors[0].tensor.dtype",
                 [](auto* r) { Tensor(r, 0)->set_dtype(v1::DTYPE_INT64); }},
        RopeCase{"Float8Tensor", kInvalid, "item.tensors[0].tensor.dtype",
                 [](auto* r) { Tensor(r, 0)->set_dtype(v1::DTYPE_FLOAT8_E5M2); }},
        RopeCase{"TensorTooShort", kInvalid,
                 "item.tensors[1]: raw[1] has 124 bytes; must have 128 for FLOAT32 [4, 1, 8]",
                 [](auto* r) { r->mutable_raw(1)->resize(124); }},
        RopeCase{"TensorTooLong", kInvalid,
                 "item.tensors[0]: raw[0] has 257 bytes; must have 256 for FLOAT32 [4, 2, 8]",
                 [](auto* r) { r->mutable_raw(0)->push_back('x'); }},
        RopeCase{
            "StridedTensorTooShort", kInvalid,
            "raw[0] has 256 bytes; must have 448 for FLOAT32 [4, 2, 8] with strides [32, 8, 1]",
            [](auto* r) {
              for (const int64_t stride : {32, 8, 1}) Tensor(r, 0)->add_strides(stride);
            }},
        RopeCase{"OverlappingStrides", kInvalid, "item.tensors[0].tensor.strides[0]: 4",
                 [](auto* r) {
                   for (const int64_t stride : {4, 8, 1}) Tensor(r, 0)->add_strides(stride);
                 }},
        RopeCase{"OneEntryMissing", kInvalid, "raw: 1 entries; must be 2",
                 [](auto* r) { r->mutable_raw()->RemoveLast(); }},
        RopeCase{"DeltaWithoutOrigin", kInvalid, "item.from_positions: not set",
                 [](auto* r) { r->mutable_item()->set_direction(v1::DIRECTION_DELTA); }},
        RopeCase{
            "WrongNumberOfPositions", kInvalid, "item.positions: 3 positions",
            [](auto* r) {
              r->mutable_item()->mutable_positions()->mutable_range()->mutable_integer()->set_count(
                  3);
            }},
        RopeCase{"PagedCacheOfNothing", kInvalid, "item.paged_cache.values: not set",
                 [](auto* r) { r->mutable_item()->mutable_paged_cache(); }},
        RopeCase{"ScaleWithoutFloat8", kInvalid, "item.tensors[0].inv_scale: set for FLOAT32",
                 [](auto* r) { r->mutable_item()->mutable_tensors(0)->set_inv_scale(2); }},
        RopeCase{"Float8OfFloat32", kUnimplemented, "item.tensors[0].output_dtype: FLOAT8_E4M3",
                 [](auto* r) {
                   r->mutable_item()->mutable_tensors(0)->set_output_dtype(v1::DTYPE_FLOAT8_E4M3);
                 }}),
    [](const auto& test) { return test.param.name; });

TEST(ParseErrorTest, HeaderThatDoesNotParseNamesTheMessage) {
  // Field 1 is a message, whose bytes here are not fields.
  EXPECT_THAT(Viewed(ParseEncode, "\x0A\x01\xFF").status(),
              StatusIs(kInvalid, HasSubstr("request: does not parse")));
}

TEST(ParseErrorTest, TextThatIsNotUtf8DoesNotParse) {
  v1::EncodeRequest request = EncodeRequestOf(1);
  std::string bytes = request.SerializeAsString();
  bytes[bytes.find("transformer")] = '\xFF';
  EXPECT_THAT(Viewed(ParseEncode, bytes).status(), StatusIs(kInvalid, HasSubstr("request: ")));
}

TEST(ParseErrorTest, EveryTruncationIsRefusedOrStillComplete) {
  const std::string bytes = RopeRequestOf(2).SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Viewed(ParseApplyRoPE, bytes.substr(0, size)).status().code(), kInvalid) << size;
  }
}

// Batches ----------------------------------------------------------------------------------------

TEST(ParseBatchTest, ZeroItemsAreValid) {
  const Viewed viewed(ParseBatchEncode, "");
  ASSERT_THAT(viewed.status(), IsOk());
  EXPECT_TRUE(viewed.view()->items.empty());
}

TEST(ParseBatchTest, BadItemFailsAloneAndItsEntriesAreSkipped) {
  auto batch = BatchOf<v1::BatchApplyRoPERequest>({1, 2, 3});
  batch.mutable_items(1)->mutable_spec()->set_rotary_dim(3);
  const Viewed viewed(ParseBatchApplyRoPE, batch.SerializeAsString());
  ASSERT_THAT(viewed.status(), IsOk());
  EXPECT_THAT(viewed.item_status(0), IsOk());
  EXPECT_THAT(viewed.item_status(1), StatusIs(kInvalid, HasSubstr("items[1].spec.rotary_dim")));
  ASSERT_THAT(viewed.item_status(2), IsOk());
  EXPECT_EQ(Joined(viewed.item(2), Role::kTensor, 0), std::string(192, 'q'));
}

TEST(ParseBatchTest, WrongPayloadLengthFailsItsItemOnly) {
  auto batch = BatchOf<v1::BatchApplyRoPERequest>({1, 2, 3});
  batch.mutable_raw(2)->pop_back();  // q of item 1
  const Viewed viewed(ParseBatchApplyRoPE, batch.SerializeAsString());
  ASSERT_THAT(viewed.status(), IsOk());
  EXPECT_THAT(viewed.item_status(1),
              StatusIs(kInvalid, HasSubstr("items[1].tensors[0]: raw[2] has 127 bytes")));
  ASSERT_THAT(viewed.item_status(2), IsOk());
  EXPECT_EQ(Joined(viewed.item(2), Role::kTensor, 1), std::string(96, 'k'));
}

TEST(ParseBatchTest, NumberOfEntriesIsCheckedForTheWholeMessage) {
  auto batch = BatchOf<v1::BatchApplyRoPERequest>({1, 2});
  batch.mutable_raw()->RemoveLast();
  EXPECT_THAT(Viewed(ParseBatchApplyRoPE, batch.SerializeAsString()).status(),
              StatusIs(kInvalid, HasSubstr("raw: 3 entries; must be 4")));
}

TEST(ParseBatchTest, TooManyItemsAreResourceExhausted) {
  const auto batch = BatchOf<v1::BatchEncodeRequest>({1, 1, 1});
  EXPECT_THAT(Viewed(ParseBatchEncode, batch.SerializeAsString(), 1 << 20, 3).status(), IsOk());
  EXPECT_THAT(Viewed(ParseBatchEncode, batch.SerializeAsString(), 1 << 20, 2).status(),
              StatusIs(kExhausted, HasSubstr("items: 3 items; must be at most 2")));
}

TEST(ParseBatchTest, ItemTooLargeForAnyResponseFailsAlone) {
  const auto batch = BatchOf<v1::BatchEncodeRequest>({1, int64_t{1} << 36, 1});
  const Viewed viewed(ParseBatchEncode, batch.SerializeAsString());
  ASSERT_THAT(viewed.status(), IsOk());
  EXPECT_THAT(viewed.item_status(0), IsOk());
  EXPECT_THAT(viewed.item_status(1), StatusIs(kExhausted, HasSubstr("items[1]: the response")));
  EXPECT_THAT(viewed.item_status(2), IsOk());
  EXPECT_EQ(viewed.view()->response_bytes, 64);
}

TEST(ParseBatchTest, ItemsThatOnlyTogetherAreTooLargeFailTheMessage) {
  const auto batch = BatchOf<v1::BatchEncodeRequest>({1000, 1000, 1000});  // 32,000 bytes each
  EXPECT_THAT(Viewed(ParseBatchEncode, batch.SerializeAsString(), 70'000).status(),
              StatusIs(kExhausted, AllOf(HasSubstr("items[2]"), HasSubstr("70000"))));
  EXPECT_THAT(Viewed(ParseBatchEncode, batch.SerializeAsString(), 110'000).status(), IsOk());
}

// The entries in the order that the service promises, and the slots' memory counted.
TEST(ParsePagedCacheTest, TakesItsFourEntriesAfterTheOthers) {
  v1::ApplyRoPERequest request = RopeRequestOf(4);
  v1::PagedCacheWrite& cache = *request.mutable_item()->mutable_paged_cache();
  SetShape(cache.mutable_values(), v1::DTYPE_FLOAT32, {4, 1, 8});
  SetShape(cache.mutable_key_cache(), v1::DTYPE_FLOAT32, {2, 4, 2, 8});
  SetShape(cache.mutable_value_cache(), v1::DTYPE_FLOAT32, {2, 4, 1, 8});
  SetShape(cache.mutable_slot_mapping(), v1::DTYPE_INT32, {4});
  for (const auto& [bytes, letter] :
       {std::pair(128, 'v'), std::pair(512, 'K'), std::pair(256, 'V'), std::pair(16, 's')}) {
    request.add_raw(std::string(static_cast<size_t>(bytes), letter));
  }
  const Viewed viewed(ParseApplyRoPE, request.SerializeAsString());
  ASSERT_THAT(viewed.status(), IsOk());
  const engine::Item& item = viewed.item(0);
  EXPECT_EQ(Joined(item, Role::kValues), std::string(128, 'v'));
  EXPECT_EQ(Joined(item, Role::kKeyCache), std::string(512, 'K'));
  EXPECT_EQ(Joined(item, Role::kValueCache), std::string(256, 'V'));
  EXPECT_EQ(Joined(item, Role::kSlotMapping), std::string(16, 's'));
  EXPECT_EQ(viewed.view()->copied_bytes, 4 * kBytesPerSlot);
  EXPECT_EQ(viewed.view()->response_bytes, 512 + 256 + 128);  // and the other tensor
  request.mutable_raw(5)->pop_back();
  EXPECT_THAT(Viewed(ParseApplyRoPE, request.SerializeAsString()).status(),
              StatusIs(kInvalid, HasSubstr("item.paged_cache.slot_mapping: raw[5] has 15 bytes; "
                                           "must have 16 for INT32 [4]")));
}

// Tensors that came in several pieces, which nobody gathers tile by tile.
TEST(ParseApplyRoPETest, MemoryToGatherTensorsIsCounted) {
  v1::ApplyRoPERequest request = RopeRequestOf(4);
  for (const bool narrow : {false, true}) {
    if (narrow) {
      for (v1::RopeTensor& tensor : *request.mutable_item()->mutable_tensors()) {
        tensor.mutable_tensor()->set_dtype(v1::DTYPE_BFLOAT16);
        tensor.set_output_dtype(v1::DTYPE_FLOAT8_E4M3);
      }
      for (std::string& raw : *request.mutable_raw()) raw.resize(raw.size() / 2);
    }
    const std::string bytes = request.SerializeAsString();
    std::vector<absl::Span<const std::byte>> pieces;
    for (size_t i = 0; i < bytes.size(); i += 16) {
      pieces.emplace_back(reinterpret_cast<const std::byte*>(bytes.data()) + i,
                          std::min<size_t>(16, bytes.size() - i));
    }
    const auto walked = WalkMessage(pieces, {});
    ASSERT_THAT(walked, IsOk());
    const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
    const auto view = ParseApplyRoPE(*walked, {plans, "cpu", 1 << 20, 8});
    ASSERT_THAT(view, IsOk());
    EXPECT_EQ(view->copied_bytes, narrow ? 4 * 3 * 8 * 2 : 0);
  }
}

// Memory of the server's for as long as the call takes.
TEST(SharedPositionsTest, TheirCopiesAreCounted) {
  const testing::Memfd memfd(int64_t{64});
  memory::LeaseStore store{memory::OwnerLimits{}};
  v1::EncodeRequest request = EncodeRequestOf(8);
  auto* const tensor = request.mutable_item()->mutable_positions()->mutable_tensor();
  SetShape(tensor, v1::DTYPE_INT64, {8});
  tensor->mutable_region()->set_region(*store.Add(memfd.fd(), "me"));
  v1::BatchEncodeRequest batch;
  for (int i = 0; i < 3; ++i) *batch.add_items() = request.item();
  const auto expect_bytes = [&](auto parse, const std::string& bytes, int64_t expected) {
    const absl::Span<const std::byte> piece(reinterpret_cast<const std::byte*>(bytes.data()),
                                            bytes.size());
    const auto walked = WalkMessage({piece}, {});
    ASSERT_THAT(walked, IsOk());
    const auto view = parse(*walked, {CompilePlan, "cpu", 1 << 20, 8, nullptr, &store});
    ASSERT_THAT(view, IsOk());
    EXPECT_EQ(view->copied_bytes, expected);
    EXPECT_EQ(view->bound.shared_bytes, expected);
  };
  expect_bytes(ParseEncode, request.SerializeAsString(), 64);
  expect_bytes(ParseBatchEncode, batch.SerializeAsString(), 3 * 64);
}

}  // namespace
}  // namespace phasor::rpc
