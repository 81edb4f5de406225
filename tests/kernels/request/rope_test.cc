// SPDX-License-Identifier: Apache-2.0
// Preparation of ApplyRoPE requests: tensors, deltas, and every error that does not depend on the
// payload.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/request/request.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::Encoding;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::PresetSpec;
using ::testing::StartsWith;
using testing::StatusIs;

TensorDesc TensorOf(std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
  return {Dtype::kFloat32, std::move(shape), std::move(strides)};
}

RopeRequest Rope(std::vector<TensorDesc> tensors, int64_t tokens) {
  RopeRequest request;
  request.spec = PresetSpec("rope-half-split");
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

absl::StatusOr<PreparedRope> Prepare(const RopeRequest& request) {
  return PrepareRope(request, CompilePlan, "item");
}

void ExpectInvalid(const RopeRequest& request, const std::string& start) {
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("item." + start)));
}

TEST(PrepareRopeTest, TakesHeadDimFromTheTensorsWhenNothingStatesIt) {
  const auto prepared = Prepare(Rope({TensorOf({5, 2, 96}), TensorOf({5, 1, 96})}, 5));
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->plan->spec.head_dim, 96);
  EXPECT_EQ(prepared->batch, 1);
  EXPECT_EQ(prepared->tokens, 5);
  EXPECT_EQ(prepared->tensors[0].heads, 2);
  EXPECT_EQ(prepared->tensors[1].heads, 1);
  EXPECT_EQ(prepared->tensors[0].output_bytes, 5 * 2 * 96 * 4);
}

TEST(ReplacePositionsTest, ChecksThemAsPrepareRopeDoesAndChangesNothingElse) {
  RopeRequest request = Rope({TensorOf({2, 5, 2, 96})}, 5);
  auto prepared = *Prepare(request);
  request.positions = PositionTensor{Dtype::kInt64, {2, 5}};
  const auto wanted = *Prepare(request);
  ASSERT_THAT(ReplacePositions(request.positions, "item.positions", &prepared), IsOk());
  EXPECT_EQ(prepared.positions.batch, wanted.positions.batch);
  EXPECT_EQ(prepared.positions.count(), 10);
  EXPECT_EQ(prepared.positions_bytes, wanted.positions_bytes);
  EXPECT_EQ(prepared.tensors[0].output_bytes, wanted.tensors[0].output_bytes);
  for (const Positions& bad :
       {Positions(IntegerRange{0, 1, 4}), Positions(PositionTensor{Dtype::kInt64, {3, 5}}),
        Positions(PositionTensor{Dtype::kBFloat16, {2, 5}})}) {
    request.positions = bad;
    const absl::Status status = ReplacePositions(bad, "item.positions", &prepared);
    EXPECT_THAT(status, StatusIs(kInvalid, StartsWith("item.positions")));
    EXPECT_EQ(status, Prepare(request).status());
    EXPECT_EQ(prepared.positions.count(), 10);
  }
}

TEST(PrepareRopeTest, HoldsTensorsToAStatedHeadDim) {
  RopeRequest request = Rope({TensorOf({5, 2, 128}), TensorOf({5, 2, 64})}, 5);
  request.spec = PresetSpec("llama-3");
  ExpectInvalid(request, "tensors[1].tensor.shape[2]: 64; must be the spec's head_dim (128)");
  request.spec = PresetSpec("rope-half-split");
  ExpectInvalid(request, "tensors[1].tensor.shape[2]: 64; must be the spec's head_dim (128)");
  request.spec.head_dim = 64;
  ExpectInvalid(request, "tensors[0].tensor.shape[2]: 128; must be the spec's head_dim (64)");
}

TEST(PrepareRopeTest, FindsTokensAndHeadsInEitherLayout) {
  RopeRequest request = Rope({TensorOf({3, 5, 7, 8})}, 5);
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
  ExpectInvalid(request, "positions: 5 positions; must be one per token (7)");
  request.positions = IntegerRange{0, 1, 7};
  const auto heads_first = Prepare(request);
  ASSERT_THAT(heads_first, IsOk());
  EXPECT_EQ(heads_first->tensors[0].heads, 5);
  EXPECT_EQ(heads_first->tensors[0].y_strides.head, 7 * 8 * 4);
  EXPECT_EQ(heads_first->tensors[0].y_strides.token, 8 * 4);
}

TEST(PrepareRopeTest, ReadsStridedTensorsAndWritesDenseOnes) {
  // K of a fused [tokens, (q q k v), head_dim] tensor.
  const auto prepared = Prepare(Rope({TensorOf({5, 1, 8}, {32, 8, 1})}, 5));
  ASSERT_THAT(prepared, IsOk());
  const PreparedRope::Tensor& tensor = prepared->tensors[0];
  EXPECT_FALSE(tensor.dense);
  EXPECT_EQ(tensor.x_strides.token, 32 * 4);
  EXPECT_EQ(tensor.y_strides.token, 8 * 4);
  EXPECT_EQ(tensor.input_bytes, (4 * 32 + 8) * 4);
  EXPECT_EQ(tensor.output_bytes, 5 * 8 * 4);
}

TEST(PrepareRopeTest, KnowsDenseStridesWhenItSeesThem) {
  const auto prepared = Prepare(Rope({TensorOf({5, 1, 8}, {8, 12345, 1})}, 5));
  ASSERT_THAT(prepared, IsOk());
  EXPECT_TRUE(prepared->tensors[0].dense);
  EXPECT_EQ(prepared->tensors[0].x_strides.head, prepared->tensors[0].y_strides.head);
}

TEST(PrepareRopeTest, AcceptsZeroTokensAndZeroBatchesButNoOtherZero) {
  const auto none = Prepare(Rope({TensorOf({0, 2, 8})}, 0));
  ASSERT_THAT(none, IsOk());
  EXPECT_EQ(none->tensors[0].output_bytes, 0);
  EXPECT_EQ(none->tensors[0].input_bytes, 0);
  EXPECT_THAT(Prepare(Rope({TensorOf({0, 5, 2, 8})}, 5)), IsOk());
  ExpectInvalid(Rope({TensorOf({5, 0, 8})}, 5),
                "tensors[0].tensor.shape[1]: 0; must be at least 1");
  ExpectInvalid(Rope({TensorOf({5, 2, 0})}, 5),
                "tensors[0].tensor.shape[2]: 0; must be at least 1");
  ExpectInvalid(Rope({TensorOf({-5, 2, 8})}, 5), "tensors[0].tensor.shape[0]: -5 is out of range");
}

TEST(PrepareRopeTest, RefusesBadTensorLists) {
  ExpectInvalid(Rope({}, 5), "tensors: 0 tensors");
  ExpectInvalid(Rope(std::vector<TensorDesc>(65, TensorOf({5, 2, 8})), 5), "tensors: 65 tensors");
  ExpectInvalid(Rope({TensorOf({5, 8})}, 5),
                "tensors[0].tensor.shape: 2 dimensions; must be [tokens, heads, head_dim]");
  ExpectInvalid(Rope({TensorOf({1, 1, 5, 2, 8})}, 5), "tensors[0].tensor.shape: 5 dimensions");
  ExpectInvalid(Rope({TensorOf({5, 2, 8}), TensorOf({6, 2, 8})}, 5),
                "tensors[1].tensor.shape[0]: 6 tokens");
  ExpectInvalid(Rope({TensorOf({5, 2, 8}), TensorOf({2, 5, 2, 8})}, 5),
                "tensors[1].tensor.shape: batch 2");
  RopeRequest request = Rope({{Dtype::kInt64, {5, 2, 8}, {}}}, 5);
  ExpectInvalid(request, "tensors[0].tensor.dtype: INT64");
  request = Rope({TensorOf({int64_t{1} << 40, int64_t{1} << 40, 8})}, 5);
  ExpectInvalid(request, "tensors[0].tensor: shape times element size passes 2^62");
  ExpectInvalid(Rope({TensorOf({5, 2, 8}, {16, 4, 1})}, 5),
                "tensors[0].tensor.strides[1]: 4 makes elements overlap");
}

TEST(PrepareRopeTest, RefusesWhatIsNotRotary) {
  RopeRequest request = Rope({TensorOf({5, 2, 8})}, 5);
  request.spec = Encoding(8);
  ExpectInvalid(request, "spec.kind: ENCODING; must be ROTARY for this call");
  request.spec = PresetSpec("nonsense");
  EXPECT_THAT(Prepare(request),
              StatusIs(absl::StatusCode::kNotFound, StartsWith("item.spec.preset")));
  ExpectInvalid(Rope({TensorOf({5, 2, 63})}, 5), "spec.rotary_dim: 63 is odd");
}

TEST(PrepareRopeTest, MatchesPositionsToTokensAndBatch) {
  RopeRequest request = Rope({TensorOf({3, 5, 2, 8})}, 5);
  request.positions = PositionTensor{Dtype::kInt32, {3, 5}};
  EXPECT_EQ(Prepare(request)->positions_bytes, 60);
  request.positions = PositionTensor{Dtype::kInt32, {1, 5}};
  EXPECT_THAT(Prepare(request), IsOk());
  request.positions = PositionTensor{Dtype::kInt32, {2, 5}};
  ExpectInvalid(request, "positions: batch 2; must be 1 or the tensors' batch (3)");
  request.positions = IntegerRange{0, 1, 15};
  ExpectInvalid(request, "positions: 15 positions; must be one per token (5)");
}

TEST(PrepareRopeTest, MakesAJobThatBorrowsThePreparedRequest) {
  RopeRequest request = Rope({TensorOf({5, 2, 8}), TensorOf({5, 1, 8}, {32, 8, 1})}, 5);
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
  const auto prepared = Prepare(Delta({TensorOf({5, 2, 8})}, 5));
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->from_plan, prepared->plan);
  const RotaryJob job = MakeRotaryJob(*prepared, {nullptr}, {nullptr});
  EXPECT_EQ(job.from_positions, &*prepared->from_positions);
  EXPECT_EQ(job.from_plan, prepared->plan.get());
  EXPECT_FALSE(job.inverse);
}

TEST(PrepareDeltaTest, MovesKeysBetweenBases) {
  RopeRequest request = Delta({TensorOf({5, 2, 8})}, 5);
  request.from_spec = PresetSpec("rope-half-split");
  request.from_spec->rope_theta = 500000;
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_NE(prepared->from_plan, prepared->plan);
  EXPECT_EQ(prepared->from_plan->spec.rope_theta, 500000);
}

TEST(PrepareDeltaTest, NeedsFromPositionsExactlyForDelta) {
  RopeRequest request = Delta({TensorOf({5, 2, 8})}, 5);
  request.from_positions.reset();
  ExpectInvalid(request, "from_positions: not set; must be given for DELTA");
  request = Delta({TensorOf({5, 2, 8})}, 5);
  request.direction = Direction::kForward;
  ExpectInvalid(request, "from_positions: set; must be only for DELTA");
  request.from_positions.reset();
  request.from_spec = PresetSpec("rope-half-split");
  ExpectInvalid(request, "from_spec: set; must be only for DELTA");
}

TEST(PrepareDeltaTest, NeedsAsManyFromPositions) {
  RopeRequest request = Delta({TensorOf({3, 5, 2, 8})}, 5);
  request.from_positions = IntegerRange{0, 1, 4};
  ExpectInvalid(request, "from_positions: 4 positions; must be one per token (5)");
  request.from_positions = PositionTensor{Dtype::kInt64, {3, 5}};
  ExpectInvalid(request, "from_positions: 15 positions; must be as many as positions (5)");
  request.positions = PositionTensor{Dtype::kInt64, {3, 5}};
  EXPECT_EQ(Prepare(request)->from_positions_bytes, 120);
}

TEST(PrepareDeltaTest, ReadsKeysAsTheyWereWrittenAndWritesThemAsTheSpecWould) {
  RopeRequest request = Delta({TensorOf({5, 2, 8})}, 5);
  request.spec.pairing_out = Pairing::kInterleaved;
  EXPECT_THAT(Prepare(request), IsOk()) << "what wrote them: the same spec";
  request.from_spec = PresetSpec("rope-half-split");
  request.from_spec->pairing = Pairing::kInterleaved;
  EXPECT_THAT(Prepare(request), IsOk()) << "from one storage order to another";
}

TEST(PrepareDeltaTest, ChangesAmplitudesButOfNothing) {
  RopeRequest request = Delta({TensorOf({5, 2, 8})}, 5);
  request.spec.attention_factor = 1.25;
  EXPECT_THAT(Prepare(request), IsOk());
  request.from_spec = PresetSpec("rope-half-split");
  EXPECT_THAT(Prepare(request), IsOk());
  request.from_spec->attention_factor = 0;
  ExpectInvalid(request, "from_spec.attention_factor: 0 cannot be undone");
  request = Rope({TensorOf({5, 2, 8})}, 5);
  request.spec.attention_factor = 0;
  EXPECT_THAT(Prepare(request), IsOk());
  request.direction = Direction::kInverse;
  ExpectInvalid(request, "spec.attention_factor: 0 cannot be undone");
}

TEST(PrepareDeltaTest, RefusesToMoveKeysToOtherLanes) {
  RopeRequest request = Delta({TensorOf({5, 2, 8})}, 5);
  request.from_spec = PresetSpec("rope-half-split");
  request.from_spec->rotary_dim = 4;
  ExpectInvalid(request, "from_spec: rotates lanes [0, 4); must be those of spec, [0, 8)");
}

// Heads with their own frequencies --------------------------------------------------------------

absl::StatusOr<std::shared_ptr<const Plan>> ThreeHeads(const ResolvedSpec& spec) {
  auto plan = std::make_shared<Plan>();
  plan->spec = spec;
  plan->heads = spec.rope_theta == 10000 ? 3 : 1;
  return plan;
}

TEST(PrepareHeadsTest, NameBothNumbersWhenTheyDiffer) {
  RopeRequest request = Rope({TensorOf({5, 3, 8}), TensorOf({5, 2, 8})}, 5);
  EXPECT_THAT(
      PrepareRope(request, ThreeHeads, "item"),
      StatusIs(kInvalid, StartsWith("item.tensors[1].tensor.shape[1]: 2 heads; must be the spec's "
                                    "frequency_heads (3)")));
  request.layout = RopeLayout::kHeadsTokens;
  request.tensors = {TensorOf({4, 5, 8})};
  EXPECT_THAT(PrepareRope(request, ThreeHeads, "item"),
              StatusIs(kInvalid, StartsWith("item.tensors[0].tensor.shape[0]: 4 heads")));
  request.tensors = {TensorOf({3, 5, 8})};
  EXPECT_THAT(PrepareRope(request, ThreeHeads, "item"), IsOk());
}

TEST(PrepareHeadsTest, AreThoseThatASpecHasFrequenciesFor) {
  RopeRequest request = Rope({TensorOf({5, 2, 8}), TensorOf({5, 3, 8})}, 5);
  request.spec.family = FrequencyFamily::kExplicit;
  request.spec.inv_freq.assign(8, 1);
  request.spec.frequency_heads = 2;
  ExpectInvalid(request, "tensors[1].tensor.shape[1]: 3 heads; must be the spec's");
  request.tensors.pop_back();
  EXPECT_THAT(Prepare(request), IsOk());
}

TEST(PrepareHeadsTest, MustBeEqualAtBothEndsOfAMove) {
  RopeRequest request = Delta({TensorOf({5, 3, 8})}, 5);
  request.from_spec = PresetSpec("rope-half-split");
  request.from_spec->rope_theta = 500;
  EXPECT_THAT(
      PrepareRope(request, ThreeHeads, "item"),
      StatusIs(kInvalid, StartsWith("item.from_spec.frequency_heads: 1; must be spec's (3)")));
}

// A slice of a request must equal a request for only those tokens of [7, heads, 8] tensors.
void ExpectSliceIsARequestOfItsOwn(RopeLayout layout) {
  const auto shaped = [&](int64_t tokens, int64_t heads) {
    return layout == RopeLayout::kTokensHeads ? TensorOf({tokens, heads, 8})
                                              : TensorOf({heads, tokens, 8});
  };
  RopeRequest whole = Delta({shaped(7, 3), shaped(7, 1)}, 7);
  whole.layout = layout;
  RopeRequest part = whole;
  part.tensors = {shaped(4, 3), shaped(4, 1)};
  part.positions = IntegerRange{2, 1, 4};
  part.from_positions = IntegerRange{102, 1, 4};
  const auto expected = Prepare(part);
  ASSERT_THAT(expected, IsOk());
  const PreparedRope slice = SliceTokens(Prepare(whole).value(), 2, 4);
  EXPECT_EQ(slice.tokens, 4);
  EXPECT_EQ(slice.plan->fingerprint, expected->plan->fingerprint);
  EXPECT_EQ(slice.from_plan->fingerprint, expected->from_plan->fingerprint);
  for (size_t i = 0; i < 2; ++i) {
    const PreparedRope::Tensor& got = slice.tensors[i];
    const PreparedRope::Tensor& want = expected->tensors[i];
    EXPECT_EQ(got.shape, want.shape);
    EXPECT_EQ(got.heads, want.heads);
    EXPECT_EQ(got.input_bytes, want.input_bytes);
    EXPECT_EQ(got.output_bytes, want.output_bytes);
    EXPECT_EQ(got.x_strides.token, want.x_strides.token);
    EXPECT_EQ(got.x_strides.head, want.x_strides.head);
    EXPECT_EQ(got.y_strides.token, want.y_strides.token);
    EXPECT_EQ(got.y_strides.head, want.y_strides.head);
  }
  Position got[2], want[2];
  ReadPositions(slice.positions, 0, 1, &got[0]);
  ReadPositions(*slice.from_positions, 3, 1, &got[1]);
  ReadPositions(expected->positions, 0, 1, &want[0]);
  ReadPositions(*expected->from_positions, 3, 1, &want[1]);
  EXPECT_EQ(got[0], want[0]);
  EXPECT_EQ(got[1], want[1]);
}

TEST(SliceRopeTest, IsTheRequestThatItsTokensAloneWouldBe) {
  ExpectSliceIsARequestOfItsOwn(RopeLayout::kTokensHeads);
  ExpectSliceIsARequestOfItsOwn(RopeLayout::kHeadsTokens);
}

}  // namespace
}  // namespace phasor
