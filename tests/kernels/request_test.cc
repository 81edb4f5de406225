// SPDX-License-Identifier: Apache-2.0
// Preparation of requests: sizes, strides, and every refusal that needs no payload.
#include "kernels/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

Spec Encoding(int64_t dim) {
  Spec spec;
  spec.preset = "transformer";
  spec.dim = dim;
  return spec;
}

Spec Rotary(const char* preset = "rope-half-split") {
  Spec spec;
  spec.preset = preset;
  return spec;
}

TensorDesc Tensor(std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
  return {Dtype::kFloat32, std::move(shape), std::move(strides)};
}

EncodeRequest Encode(int64_t dim, int64_t count) {
  EncodeRequest request;
  request.spec = Encoding(dim);
  request.positions = IntegerRange{0, 1, count};
  return request;
}

RopeRequest Rope(std::vector<TensorDesc> tensors, int64_t tokens) {
  RopeRequest request;
  request.spec = Rotary();
  request.positions = IntegerRange{0, 1, tokens};
  request.tensors = std::move(tensors);
  return request;
}

RopeRequest Delta(std::vector<TensorDesc> tensors, int64_t tokens) {
  RopeRequest request = Rope(std::move(tensors), tokens);
  request.direction = Direction::kDelta;
  request.from_positions = IntegerRange{100, 1, tokens};
  return request;
}

absl::StatusOr<PreparedEncode> Prepare(const EncodeRequest& request) {
  return PrepareEncode(request, CompilePlan, "item");
}

absl::StatusOr<PreparedRope> Prepare(const RopeRequest& request) {
  return PrepareRope(request, CompilePlan, "item");
}

template <typename Request>
void ExpectInvalid(const Request& request, const std::string& start) {
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("item." + start)));
}

// Sizes -----------------------------------------------------------------------------------------

TEST(DenseBytesTest, MultipliesExtentsAndElementSize) {
  EXPECT_EQ(*DenseBytes(Tensor({3, 5, 7}), "t"), 3 * 5 * 7 * 4);
  EXPECT_EQ(*DenseBytes({Dtype::kBFloat16, {9}, {}}, "t"), 18);
  EXPECT_EQ(*DenseBytes(Tensor({}), "t"), 4);
  EXPECT_EQ(*DenseBytes(Tensor({int64_t{1} << 40, 0, int64_t{1} << 40}), "t"), 0);
}

TEST(DenseBytesTest, RefusesWhatOverflows) {
  EXPECT_THAT(DenseBytes(Tensor({int64_t{1} << 40, int64_t{1} << 21}), "t"),
              StatusIs(kInvalid, StartsWith("t: shape times")));
  EXPECT_THAT(DenseBytes(Tensor({int64_t{1} << 40, int64_t{1} << 40, int64_t{1} << 40}), "t"),
              StatusIs(kInvalid, HasSubstr("2^62")));
  EXPECT_THAT(DenseBytes(Tensor({kHighest, 2}), "t"), StatusIs(kInvalid, StartsWith("t.shape[0]")));
  EXPECT_THAT(DenseBytes(Tensor({4, -1}), "t"),
              StatusIs(kInvalid, StartsWith("t.shape[1]: -1 is out of range")));
  EXPECT_EQ(*DenseBytes(Tensor({int64_t{1} << 40, int64_t{1} << 20}), "t"), int64_t{1} << 62);
}

TEST(SpannedBytesTest, CountsFromTheFirstToTheLastElement) {
  EXPECT_EQ(*SpannedBytes(Tensor({3, 4}, {10, 1}), "t"), (2 * 10 + 4) * 4);
  EXPECT_EQ(*SpannedBytes(Tensor({3, 4}, {4, 1}), "t"), 48);
  EXPECT_EQ(*SpannedBytes(Tensor({3, 4}), "t"), 48);
  EXPECT_EQ(*SpannedBytes(Tensor({0, 4}, {kHighest, 1}), "t"), 0);
}

TEST(SpannedBytesTest, AllowsPermutedDimensions) {
  EXPECT_EQ(*SpannedBytes(Tensor({2, 3, 4}, {4, 8, 1}), "t"), 2 * 3 * 4 * 4);
}

TEST(SpannedBytesTest, IgnoresTheStrideOfASingleElement) {
  EXPECT_EQ(*SpannedBytes(Tensor({1, 4}, {0, 1}), "t"), 16);
  EXPECT_EQ(*SpannedBytes(Tensor({1, 4}, {kHighest, 1}), "t"), 16);
}

TEST(SpannedBytesTest, RefusesStridesThatOverlapOrAreNegative) {
  EXPECT_THAT(
      SpannedBytes(Tensor({3, 4}, {3, 1}), "t"),
      StatusIs(kInvalid, StartsWith("t.strides[0]: 3 makes elements overlap, must be at least 4")));
  EXPECT_THAT(SpannedBytes(Tensor({3, 4}, {0, 1}), "t"), StatusIs(kInvalid, HasSubstr("overlap")));
  EXPECT_THAT(SpannedBytes(Tensor({2, 3, 4}, {4, 4, 1}), "t"),
              StatusIs(kInvalid, HasSubstr("overlap")));
  EXPECT_THAT(SpannedBytes(Tensor({3, 4}, {-4, 1}), "t"),
              StatusIs(kInvalid, StartsWith("t.strides[0]: -4 is negative")));
  EXPECT_THAT(SpannedBytes(Tensor({3, 4}, {8, 2}), "t"),
              StatusIs(kInvalid, StartsWith("t.strides[1]: 2, the last must be 1")));
  EXPECT_THAT(SpannedBytes(Tensor({3, 4}, {4}), "t"),
              StatusIs(kInvalid, StartsWith("t.strides: 1 entries")));
}

TEST(SpannedBytesTest, RefusesSpansThatOverflow) {
  EXPECT_THAT(SpannedBytes(Tensor({3, 4}, {kHighest, 1}), "t"),
              StatusIs(kInvalid, HasSubstr("2^62")));
  EXPECT_THAT(SpannedBytes(Tensor({2, 4}, {int64_t{1} << 60, 1}), "t"),
              StatusIs(kInvalid, HasSubstr("2^62")));
}

// Encode ----------------------------------------------------------------------------------------

TEST(PrepareEncodeTest, ComputesTheSizeOfTheOutput) {
  EncodeRequest request = Encode(6, 10);
  request.output_dtype = Dtype::kBFloat16;
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->output.shape, (std::vector<int64_t>{10, 6}));
  EXPECT_EQ(prepared->output_bytes, 10 * 6 * 2);
  EXPECT_EQ(prepared->positions_bytes, 0);
  EXPECT_EQ(prepared->add_to_bytes, 0);
}

TEST(PrepareEncodeTest, FlattensABatchOfPositions) {
  EncodeRequest request = Encode(6, 0);
  request.positions = PositionTensor{Dtype::kFloat64, {3, 5}};
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->output.shape, (std::vector<int64_t>{15, 6}));
  EXPECT_EQ(prepared->positions_bytes, 120);
}

TEST(PrepareEncodeTest, AnswersNoPositionsWithNoBytes) {
  const auto prepared = Prepare(Encode(6, 0));
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->output_bytes, 0);
}

TEST(PrepareEncodeTest, TakesAStridedEmbeddingToAddTo) {
  EncodeRequest request = Encode(6, 10);
  request.add_to = Tensor({10, 6}, {8, 1});
  request.embedding_scale = 22.6;
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->add_to_bytes, (9 * 8 + 6) * 4);
  std::byte in[1], out[1];
  const EncodeJob job = MakeEncodeJob(*prepared, in, out);
  EXPECT_EQ(job.add_to_row_bytes, 32);
  EXPECT_EQ(job.out_row_bytes, 24);
  EXPECT_EQ(job.embedding_scale, 22.6);
  EXPECT_EQ(job.add_to, in);
  EXPECT_EQ(job.out, out);
  EXPECT_EQ(job.positions->count(), 10);
  EXPECT_EQ(job.plan, prepared->plan.get());
}

TEST(PrepareEncodeTest, RefusesAnEmbeddingOfAnotherShapeOrType) {
  EncodeRequest request = Encode(6, 10);
  request.add_to = Tensor({10, 7});
  ExpectInvalid(request, "add_to.shape: must be [positions, dim] = [10, 6]");
  request.add_to = Tensor({60});
  ExpectInvalid(request, "add_to.shape");
  request.add_to = TensorDesc{Dtype::kFloat16, {10, 6}, {}};
  ExpectInvalid(request, "add_to.dtype: FLOAT16, must be the output's FLOAT32");
  request.add_to = Tensor({10, 6}, {0, 1});
  ExpectInvalid(request, "add_to.strides[0]: 0 makes elements overlap");
  request.add_to = Tensor({10, 6});
  request.embedding_scale = std::nan("");
  ExpectInvalid(request, "embedding_scale: nan");
}

TEST(PrepareEncodeTest, RefusesAScaleOfNothing) {
  EncodeRequest request = Encode(6, 10);
  request.embedding_scale = 2;
  ExpectInvalid(request, "embedding_scale: set without add_to");
}

TEST(PrepareEncodeTest, RefusesWhatIsNotAnEncodingAndTypesItCannotCompute) {
  EncodeRequest request = Encode(6, 10);
  request.output_dtype = Dtype::kInt32;
  ExpectInvalid(request, "output_dtype: INT32, must be FLOAT64");
  request = Encode(6, 10);
  request.spec = Rotary("flux");
  ExpectInvalid(request, "spec.kind: ROTARY, this call takes ENCODING");
  request.spec = Encoding(7);
  ExpectInvalid(request, "spec.dim: 7 is odd");
}

TEST(PrepareEncodeTest, RefusesPositionsOfAnotherNumberOfAxes) {
  EncodeRequest request = Encode(8, 10);
  request.spec.preset = "grid-2d-concat";
  ExpectInvalid(request, "positions.range: one axis, the spec has 2");
  request.positions = PositionGrid{{IntegerRange{0, 1, 2}, IntegerRange{0, 1, 3}}};
  EXPECT_EQ(Prepare(request)->output_bytes, 6 * 8 * 4);
}

TEST(PrepareEncodeTest, RefusesAnOutputThatOverflows) {
  EncodeRequest request = Encode(65536, int64_t{1} << 40);
  request.output_dtype = Dtype::kFloat64;
  EXPECT_THAT(Prepare(request), IsOk());  // 2^59 bytes: a limit of whoever has the memory
  request.positions = IntegerRange{0, 1, (int64_t{1} << 40) + 1};
  ExpectInvalid(request, "positions.range.integer.count");
}

TEST(PrepareEncodeTest, HonoursPins) {
  EncodeRequest request = Encode(6, 10);
  const std::string fingerprint = Prepare(request)->plan->fingerprint;
  request.pins = {fingerprint, kNumericsVersion, "cpu"};
  EXPECT_THAT(Prepare(request), IsOk());
  request.pins.spec_fingerprint = std::string(32, '0');
  EXPECT_THAT(Prepare(request), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         StartsWith("item.pins.spec_fingerprint: 000")));
  request.pins = {"", kNumericsVersion + 1, ""};
  EXPECT_THAT(Prepare(request), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         StartsWith("item.pins.numerics_version: ")));
}

TEST(PrepareEncodeTest, PassesTheErrorsOfThePlanOn) {
  const auto refuse = [](const ResolvedSpec&) -> absl::StatusOr<std::shared_ptr<const Plan>> {
    return absl::ResourceExhaustedError("no");
  };
  EXPECT_THAT(PrepareEncode(Encode(6, 10), refuse, "item"),
              StatusIs(absl::StatusCode::kResourceExhausted, "no"));
}

// Rope ------------------------------------------------------------------------------------------

TEST(PrepareRopeTest, TakesHeadDimFromTheTensorsWhenNothingStatesIt) {
  const auto prepared = Prepare(Rope({Tensor({5, 2, 96}), Tensor({5, 1, 96})}, 5));
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->plan->spec.head_dim, 96);
  EXPECT_EQ(prepared->batch, 1);
  EXPECT_EQ(prepared->tokens, 5);
  EXPECT_EQ(prepared->tensors[0].heads, 2);
  EXPECT_EQ(prepared->tensors[1].heads, 1);
  EXPECT_EQ(prepared->tensors[0].output_bytes, 5 * 2 * 96 * 4);
}

TEST(PrepareRopeTest, HoldsTensorsToAStatedHeadDim) {
  RopeRequest request = Rope({Tensor({5, 2, 128}), Tensor({5, 2, 64})}, 5);
  request.spec = Rotary("llama-3");
  ExpectInvalid(request, "tensors[1].tensor.shape[2]: 64, must be the spec's head_dim (128)");
  request.spec = Rotary();
  ExpectInvalid(request, "tensors[1].tensor.shape[2]: 64, must be the spec's head_dim (128)");
  request.spec.head_dim = 64;
  ExpectInvalid(request, "tensors[0].tensor.shape[2]: 128, must be the spec's head_dim (64)");
}

TEST(PrepareRopeTest, FindsTokensAndHeadsInEitherLayout) {
  RopeRequest request = Rope({Tensor({3, 5, 7, 8})}, 5);
  const auto tokens_first = Prepare(request);
  ASSERT_THAT(tokens_first, IsOk());
  EXPECT_EQ(tokens_first->batch, 3);
  EXPECT_EQ(tokens_first->tokens, 5);
  EXPECT_EQ(tokens_first->tensors[0].heads, 7);
  const RotaryStrides& strides = tokens_first->tensors[0].y_strides;
  EXPECT_EQ(strides.batch, 5 * 7 * 8 * 4);
  EXPECT_EQ(strides.token, 7 * 8 * 4);
  EXPECT_EQ(strides.head, 8 * 4);
  request.layout = RopeLayout::kHeadsTokens;
  ExpectInvalid(request, "positions: 5 positions, must be one per token (7)");
  request.positions = IntegerRange{0, 1, 7};
  const auto heads_first = Prepare(request);
  ASSERT_THAT(heads_first, IsOk());
  EXPECT_EQ(heads_first->tensors[0].heads, 5);
  EXPECT_EQ(heads_first->tensors[0].y_strides.head, 7 * 8 * 4);
  EXPECT_EQ(heads_first->tensors[0].y_strides.token, 8 * 4);
}

TEST(PrepareRopeTest, ReadsStridedTensorsAndWritesDenseOnes) {
  // K of a fused [tokens, (q q k v), head_dim] tensor.
  const auto prepared = Prepare(Rope({Tensor({5, 1, 8}, {32, 8, 1})}, 5));
  ASSERT_THAT(prepared, IsOk());
  const PreparedRope::Tensor& tensor = prepared->tensors[0];
  EXPECT_FALSE(tensor.dense);
  EXPECT_EQ(tensor.x_strides.token, 32 * 4);
  EXPECT_EQ(tensor.y_strides.token, 8 * 4);
  EXPECT_EQ(tensor.input_bytes, (4 * 32 + 8) * 4);
  EXPECT_EQ(tensor.output_bytes, 5 * 8 * 4);
}

TEST(PrepareRopeTest, KnowsDenseStridesWhenItSeesThem) {
  const auto prepared = Prepare(Rope({Tensor({5, 1, 8}, {8, 12345, 1})}, 5));
  ASSERT_THAT(prepared, IsOk());
  EXPECT_TRUE(prepared->tensors[0].dense);
  EXPECT_EQ(prepared->tensors[0].x_strides.head, prepared->tensors[0].y_strides.head);
}

TEST(PrepareRopeTest, AcceptsZeroTokensAndZeroBatchesButNoOtherZero) {
  const auto none = Prepare(Rope({Tensor({0, 2, 8})}, 0));
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(none->tensors[0].output_bytes, 0);
  EXPECT_EQ(none->tensors[0].input_bytes, 0);
  EXPECT_THAT(Prepare(Rope({Tensor({0, 5, 2, 8})}, 5)), IsOk());
  ExpectInvalid(Rope({Tensor({5, 0, 8})}, 5), "tensors[0].tensor.shape[1]: 0, must be at least 1");
  ExpectInvalid(Rope({Tensor({5, 2, 0})}, 5), "tensors[0].tensor.shape[2]: 0, must be at least 1");
  ExpectInvalid(Rope({Tensor({-5, 2, 8})}, 5), "tensors[0].tensor.shape[0]: -5 is out of range");
}

TEST(PrepareRopeTest, RefusesBadTensorLists) {
  ExpectInvalid(Rope({}, 5), "tensors: 0 tensors");
  ExpectInvalid(Rope(std::vector<TensorDesc>(65, Tensor({5, 2, 8})), 5), "tensors: 65 tensors");
  ExpectInvalid(Rope({Tensor({5, 8})}, 5),
                "tensors[0].tensor.shape: 2 dimensions, must be [tokens, heads, head_dim]");
  ExpectInvalid(Rope({Tensor({1, 1, 5, 2, 8})}, 5), "tensors[0].tensor.shape: 5 dimensions");
  ExpectInvalid(Rope({Tensor({5, 2, 8}), Tensor({6, 2, 8})}, 5),
                "tensors[1].tensor.shape[0]: 6 tokens");
  ExpectInvalid(Rope({Tensor({5, 2, 8}), Tensor({2, 5, 2, 8})}, 5),
                "tensors[1].tensor.shape: batch 2");
  RopeRequest request = Rope({{Dtype::kInt64, {5, 2, 8}, {}}}, 5);
  ExpectInvalid(request, "tensors[0].tensor.dtype: INT64");
  request = Rope({Tensor({int64_t{1} << 40, int64_t{1} << 40, 8})}, 5);
  ExpectInvalid(request, "tensors[0].tensor: shape times element size passes 2^62");
  ExpectInvalid(Rope({Tensor({5, 2, 8}, {16, 4, 1})}, 5),
                "tensors[0].tensor.strides[1]: 4 makes elements overlap");
}

TEST(PrepareRopeTest, RefusesWhatIsNotRotary) {
  RopeRequest request = Rope({Tensor({5, 2, 8})}, 5);
  request.spec = Encoding(8);
  ExpectInvalid(request, "spec.kind: ENCODING, this call takes ROTARY");
  request.spec = Rotary("nonsense");
  EXPECT_THAT(Prepare(request),
              StatusIs(absl::StatusCode::kNotFound, StartsWith("item.spec.preset")));
  ExpectInvalid(Rope({Tensor({5, 2, 63})}, 5), "spec.rotary_dim: 63 is odd");
}

TEST(PrepareRopeTest, MatchesPositionsToTokensAndBatch) {
  RopeRequest request = Rope({Tensor({3, 5, 2, 8})}, 5);
  request.positions = PositionTensor{Dtype::kInt32, {3, 5}};
  EXPECT_EQ(Prepare(request)->positions_bytes, 60);
  request.positions = PositionTensor{Dtype::kInt32, {1, 5}};
  EXPECT_THAT(Prepare(request), IsOk());
  request.positions = PositionTensor{Dtype::kInt32, {2, 5}};
  ExpectInvalid(request, "positions: batch 2, must be 1 or the tensors' batch (3)");
  request.positions = IntegerRange{0, 1, 15};
  ExpectInvalid(request, "positions: 15 positions, must be one per token (5)");
}

TEST(PrepareRopeTest, MakesAJobThatBorrowsThePreparedRequest) {
  RopeRequest request = Rope({Tensor({5, 2, 8}), Tensor({5, 1, 8}, {32, 8, 1})}, 5);
  request.direction = Direction::kInverse;
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  std::byte x0[1], x1[1], y1[1];
  const RotaryJob job = MakeRotaryJob(*prepared, {x0, x1}, {x0, y1});
  EXPECT_TRUE(job.inverse);
  EXPECT_EQ(job.from_positions, nullptr);
  EXPECT_EQ(job.positions, &prepared->positions);
  ASSERT_EQ(job.tensors.size(), 2u);
  EXPECT_EQ(job.tensors[0].x, job.tensors[0].y);
  EXPECT_EQ(job.tensors[1].y, y1);
  EXPECT_EQ(job.tensors[1].x_strides.token, 128);
}

// Delta -----------------------------------------------------------------------------------------

TEST(PrepareDeltaTest, UsesThePlanForBothEndsWithoutAFromSpec) {
  const auto prepared = Prepare(Delta({Tensor({5, 2, 8})}, 5));
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->from_plan, prepared->plan);
  const RotaryJob job = MakeRotaryJob(*prepared, {nullptr}, {nullptr});
  EXPECT_EQ(job.from_positions, &*prepared->from_positions);
  EXPECT_EQ(job.from_plan, prepared->plan.get());
  EXPECT_FALSE(job.inverse);
}

TEST(PrepareDeltaTest, MovesKeysBetweenBases) {
  RopeRequest request = Delta({Tensor({5, 2, 8})}, 5);
  request.from_spec = Rotary();
  request.from_spec->rope_theta = 500000;
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_NE(prepared->from_plan, prepared->plan);
  EXPECT_EQ(prepared->from_plan->spec.rope_theta, 500000);
}

TEST(PrepareDeltaTest, NeedsFromPositionsExactlyForDelta) {
  RopeRequest request = Delta({Tensor({5, 2, 8})}, 5);
  request.from_positions.reset();
  ExpectInvalid(request, "from_positions: not set, required for DELTA");
  request = Delta({Tensor({5, 2, 8})}, 5);
  request.direction = Direction::kForward;
  ExpectInvalid(request, "from_positions: set, must be only for DELTA");
  request.from_positions.reset();
  request.from_spec = Rotary();
  ExpectInvalid(request, "from_spec: set, must be only for DELTA");
}

TEST(PrepareDeltaTest, NeedsAsManyFromPositions) {
  RopeRequest request = Delta({Tensor({3, 5, 2, 8})}, 5);
  request.from_positions = IntegerRange{0, 1, 4};
  ExpectInvalid(request, "from_positions: 4 positions, must be one per token (5)");
  request.from_positions = PositionTensor{Dtype::kInt64, {3, 5}};
  ExpectInvalid(request, "from_positions: 15 positions, must be as many as positions (5)");
  request.positions = PositionTensor{Dtype::kInt64, {3, 5}};
  EXPECT_EQ(Prepare(request)->from_positions_bytes, 120);
}

TEST(PrepareDeltaTest, ReadsKeysInThePairingThatWroteThem) {
  RopeRequest request = Delta({Tensor({5, 2, 8})}, 5);
  request.spec.pairing_out = Pairing::kInterleaved;
  ExpectInvalid(request, "spec.pairing: HALF_SPLIT, keys to move lie as INTERLEAVED");
  request.from_spec = Rotary();
  EXPECT_THAT(Prepare(request), IsOk());
}

TEST(PrepareDeltaTest, LeavesAmplitudesAloneAndRefusesToChangeThem) {
  RopeRequest request = Delta({Tensor({5, 2, 8})}, 5);
  request.spec.attention_factor = 1.25;
  EXPECT_THAT(Prepare(request), IsOk()) << "the keys carry the factor already";
  request.from_spec = Rotary();
  EXPECT_THAT(Prepare(request), StatusIs(absl::StatusCode::kUnimplemented,
                                         StartsWith("item.from_spec.attention_factor: 1,")));
}

TEST(PrepareRopeTest, TakesAsManyHeadsAsHaveFrequencies) {
  RopeRequest request = Rope({Tensor({5, 2, 8}), Tensor({5, 3, 8})}, 5);
  request.spec.family = FrequencyFamily::kExplicit;
  request.spec.inv_freq.assign(8, 1);
  request.spec.frequency_heads = 2;
  ExpectInvalid(request, "tensors[1]: 3 heads, must be 2 (frequency_heads)");
  request.tensors.pop_back();
  EXPECT_THAT(Prepare(request), IsOk());
}

TEST(PrepareDeltaTest, RefusesToMoveKeysToOtherLanes) {
  RopeRequest request = Delta({Tensor({5, 2, 8})}, 5);
  request.from_spec = Rotary();
  request.from_spec->rotary_dim = 4;
  EXPECT_THAT(Prepare(request), StatusIs(absl::StatusCode::kUnimplemented,
                                         StartsWith("item.from_spec: rotates lanes [0, 4)")));
}

}  // namespace
}  // namespace phasor
