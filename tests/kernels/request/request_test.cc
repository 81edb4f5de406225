// SPDX-License-Identifier: Apache-2.0
// Preparation of Encode requests: sizes, tables, and every error that does not depend on the
// payload.
#include "kernels/request/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using testing::Encoding;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::PresetSpec;
using ::testing::StartsWith;
using testing::StatusIs;

TensorDesc Tensor(std::vector<int64_t> shape, std::vector<int64_t> strides = {}) {
  return {Dtype::kFloat32, std::move(shape), std::move(strides)};
}

EncodeRequest Encode(int64_t dim, int64_t count) {
  EncodeRequest request;
  request.spec = Encoding(dim);
  request.positions = IntegerRange{0, 1, count};
  return request;
}

absl::StatusOr<PreparedEncode> Prepare(const EncodeRequest& request) {
  return PrepareEncode(request, CompilePlan, "item");
}

void ExpectInvalid(const EncodeRequest& request, const std::string& start) {
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, StartsWith("item." + start)));
}

TEST(PrepareEncodeTest, ComputesTheSizeOfTheOutput) {
  EncodeRequest request = Encode(6, 10);
  request.output_dtype = Dtype::kBFloat16;
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_THAT(prepared->output.shape, ElementsAre(10, 6));
  EXPECT_EQ(prepared->output_bytes, 10 * 6 * 2);
  EXPECT_EQ(prepared->positions_bytes, 0);
  EXPECT_EQ(prepared->add_to_bytes, 0);
}

TEST(PrepareEncodeTest, FlattensABatchOfPositions) {
  EncodeRequest request = Encode(6, 0);
  request.positions = PositionTensor{Dtype::kFloat64, {3, 5}};
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_THAT(prepared->output.shape, ElementsAre(15, 6));
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
  ExpectInvalid(request, "add_to.shape: [10, 7]; must be [positions, dim] = [10, 6]");
  request.add_to = Tensor({60});
  ExpectInvalid(request, "add_to.shape");
  request.add_to = TensorDesc{Dtype::kFloat16, {10, 6}, {}};
  ExpectInvalid(request, "add_to.dtype: FLOAT16; must be the output's FLOAT32");
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
  ExpectInvalid(request, "output_dtype: INT32; must be FLOAT64");
  request = Encode(6, 10);
  request.spec = PresetSpec("flux");
  ExpectInvalid(request, "output: EMBEDDING of a ROTARY spec; must be a table");
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
  EXPECT_THAT(Prepare(request), IsOk());  // 2^59 bytes: the owner of the memory limits this
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

// Tables ----------------------------------------------------------------------------------------

EncodeRequest TableOf(EncodeOutput output, int64_t count) {
  EncodeRequest request;
  request.spec = PresetSpec("rope-half-split");
  request.spec.head_dim = 10;
  request.spec.rotary_dim = 6;
  request.positions = IntegerRange{0, 1, count};
  request.output = output;
  return request;
}

TEST(PrepareTableTest, HasTheShapeOfItsLayout) {
  const auto shape = [](EncodeOutput output) { return Prepare(TableOf(output, 7))->output.shape; };
  EXPECT_THAT(shape(EncodeOutput::kCosSin), ElementsAre(7, 2, 3));
  EXPECT_THAT(shape(EncodeOutput::kSinCosDuplicated), ElementsAre(7, 2, 6));
  EXPECT_THAT(shape(EncodeOutput::kComplex), ElementsAre(7, 3, 2));
  EXPECT_THAT(shape(EncodeOutput::kMatrix2x2), ElementsAre(7, 3, 2, 2));
  EXPECT_THAT(shape(EncodeOutput::kSin), ElementsAre(7, 3));
}

TEST(PrepareTableTest, MakesAJobOfItsLayout) {
  const auto prepared = Prepare(TableOf(EncodeOutput::kMatrix2x2, 7));
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->output_bytes, 7 * 12 * 4);
  std::byte out[1];
  const EncodeJob job = MakeEncodeJob(*prepared, nullptr, out);
  EXPECT_EQ(job.layout->width, 12);
  EXPECT_EQ(job.out_row_bytes, 48);
}

TEST(PrepareTableTest, RepeatsPairsInBlocksBlockByBlock) {
  EncodeRequest request = TableOf(EncodeOutput::kCosDuplicated, 1);
  request.spec.rotary_dim = 10;
  request.spec.axes_dim = {4, 6};
  request.spec.pairing = Pairing::kBlockHalfSplit;
  request.positions = PositionGrid{{IntegerRange{0, 1, 7}, IntegerRange{0, 1, 1}}};
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  ASSERT_EQ(prepared->layout->blocks.size(), 4u);
  EXPECT_EQ(prepared->layout->blocks[1].cos_begin, 2);
  EXPECT_EQ(prepared->layout->blocks[2].first_pair, 2);
  EXPECT_EQ(prepared->layout->blocks[3].cos_begin, 7);
  request.spec.axes_dim = {6, 4};
  ExpectInvalid(request, "output: COS_DUPLICATED of blocks whose widths are not multiples of 4");
  request.output = EncodeOutput::kCosSin;
  EXPECT_THAT(Prepare(request), IsOk());
}

TEST(PrepareTableTest, IsOfRotarySpecsOnly) {
  EncodeRequest request = Encode(8, 3);
  request.output = EncodeOutput::kCosSin;
  ExpectInvalid(request, "output: COS_SIN of an ENCODING spec; must be EMBEDDING or not set");
  request.spec = {};
  request.table = "learned";
  ExpectInvalid(request, "output: COS_SIN of a learned table; must be EMBEDDING or not set");
}

TEST(PrepareTableTest, AddsToNothing) {
  EncodeRequest request = TableOf(EncodeOutput::kCos, 7);
  request.add_to = Tensor({7, 3});
  ExpectInvalid(request, "add_to: set beside output COS; must be only with EMBEDDING");
  request.add_to.reset();
  request.embedding_scale = 2;
  ExpectInvalid(request, "embedding_scale: set without add_to");
}

TEST(SliceEncodeTest, HasTheRowsOfItsTokens) {
  EncodeRequest request;
  request.spec = Encoding(8);
  request.positions = IntegerRange{5, 1, 10};
  request.add_to = TensorDesc{Dtype::kFloat32, {10, 8}, {}};
  request.embedding_scale = 3;
  const PreparedEncode slice =
      SliceTokens(PrepareEncode(request, CompilePlan, "item").value(), 4, 6);
  EXPECT_THAT(slice.output.shape, ElementsAre(6, 8));
  EXPECT_EQ(slice.output_bytes, 6 * 8 * 4);
  EXPECT_EQ(slice.add_to->shape, (std::vector<int64_t>{6, 8}));
  EXPECT_EQ(slice.add_to_bytes, 6 * 8 * 4);
  EXPECT_EQ(slice.embedding_scale, 3);
  EXPECT_EQ(slice.positions.count(), 6);
  Position first;
  ReadPositions(slice.positions, 0, 1, &first);
  EXPECT_EQ(first.whole, 9);
}

}  // namespace
}  // namespace phasor
