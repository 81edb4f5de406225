// SPDX-License-Identifier: Apache-2.0
// Encode from a learned table: rows, roundings, and positions without a row.
#include "kernels/request/lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>

#include "tests/support/backends.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tables.h"
#include "tests/support/tensors.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::OneTable;
using ::phasor::testing::StatusIs;
using ::phasor::testing::Tensor;
using ::testing::HasSubstr;
constexpr int64_t kRows = 9, kColumns = 37;

absl::StatusOr<std::shared_ptr<const Plan>> NoPlans(const ResolvedSpec&) {
  return absl::InternalError("asked for a plan");
}

// A table of kRows rows. Element i is i / 8, which all types except bfloat16 hold exactly.
template <typename T = double>
std::shared_ptr<const Table> Counting(Dtype dtype = Dtype::kFloat64) {
  std::vector<T> values(kRows * kColumns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i) / 8;
  return testing::MakeTable("pos", dtype, kRows, kColumns, values);
}

EncodeRequest Request(Positions positions) {
  EncodeRequest request;
  request.table = "pos";
  request.positions = std::move(positions);
  return request;
}

absl::StatusOr<PreparedEncode> Prepare(const EncodeRequest& request) {
  return PrepareEncode(request, NoPlans, "item", std::make_unique<OneTable>(Counting()).get());
}

Tensor Compute(const PreparedEncode& prepared, const Tensor* add_to = nullptr) {
  std::vector<Tensor> results;
  for (auto& [name, backend] : testing::AllBackends()) {
    const Dtype dtype = prepared.output.dtype;
    Tensor out(dtype, prepared.output_bytes / SizeOf(dtype), 3);
    const Job job =
        MakeLookupJob(prepared, add_to == nullptr ? nullptr : add_to->data(), out.data());
    EXPECT_THAT(backend->Run({job}), IsOk());
    EXPECT_TRUE(out.GuardsIntact()) << name;
    if (!results.empty()) {
      EXPECT_TRUE(testing::SameBits(out, results[0])) << name;
    }
    results.push_back(std::move(out));
  }
  return results[0];
}

TEST(LookupTest, RowsAreTheTablesInEveryType) {
  std::vector<int32_t> numbers(600);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i * 5 % kRows);
  for (const auto& table : {Counting(), Counting<float>(Dtype::kFloat32)}) {
    const OneTable source(table);
    for (const Dtype dtype :
         {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
      EncodeRequest request = Request(PositionTensor{Dtype::kInt32, {2, 300}});
      request.output_dtype = dtype;
      auto prepared = PrepareEncode(request, NoPlans, "item", &source);
      ASSERT_THAT(prepared, IsOk());
      EXPECT_THAT(prepared->output.shape, ::testing::ElementsAre(600, kColumns));
      prepared->positions.data = reinterpret_cast<const std::byte*>(numbers.data());
      EXPECT_THAT(CheckLookupPositions(*prepared, "item"), IsOk());
      const Tensor out = Compute(*prepared);
      Tensor expected(dtype, 600 * kColumns, 3);
      for (int64_t i = 0; i < expected.count(); ++i) {
        expected.Set(i, (numbers[i / kColumns] * kColumns + i % kColumns) / 8.0);
      }
      EXPECT_TRUE(testing::SameBits(out, expected)) << Name(dtype);
    }
  }
}

TEST(LookupTest, NarrowTablesAreWidenedExactly) {
  std::vector<uint16_t> halves(kRows * kColumns);
  std::iota(halves.begin(), halves.end(), uint16_t{0x3F80});  // bfloat16 1.0 and up
  const OneTable source(testing::MakeTable("pos", Dtype::kBFloat16, kRows, kColumns, halves));
  EncodeRequest request = Request(AxisRange(IntegerRange{0, 1, kRows}));
  const auto prepared = PrepareEncode(request, NoPlans, "item", &source);
  ASSERT_THAT(prepared, IsOk());
  const Tensor out = Compute(*prepared);
  for (size_t i = 0; i < halves.size(); ++i) EXPECT_EQ(out[i], FloatFromBFloat16(halves[i])) << i;
}

TEST(LookupTest, AddsScaledEmbeddingWithOneRounding) {
  EncodeRequest request = Request(AxisRange(IntegerRange{8, -1, 5}));
  request.embedding_scale = 22.627417;
  request.add_to = TensorDesc{Dtype::kFloat32, {5, kColumns}, {kColumns + 2, 1}};
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  Tensor embedding(Dtype::kFloat32, 5 * (kColumns + 2), 1);
  embedding.Fill(7);
  const Tensor out = Compute(*prepared, &embedding);
  const auto scale = static_cast<float>(request.embedding_scale);
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t c = 0; c < kColumns; ++c) {
      const auto row = static_cast<float>(((8 - t) * kColumns + c) / 8.0);
      const auto x = static_cast<float>(embedding[t * (kColumns + 2) + c]);
      EXPECT_EQ(static_cast<float>(out[t * kColumns + c]), std::fma(scale, x, row));
    }
  }
}

TEST(LookupTest, StrictPositionsBeyondTheTableNamePositionAndLimit) {
  EXPECT_THAT(Prepare(Request(AxisRange(IntegerRange{5, 1, 10}))),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "item.positions: position 9 of token 4, table 'pos' ends at 8; must be in "
                       "it or out_of_range CLIP"));
  EXPECT_THAT(Prepare(Request(AxisRange(IntegerRange{2, -1, 4}))),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("position -1 of token 3")));
  EXPECT_THAT(Prepare(Request(RaggedPositions{{9, 0, 9, 2}, {0, 50, 0, 8}})),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("position 9 of token 19")));
  EXPECT_THAT(
      Prepare(Request(RaggedPositions{{2, 1}, {0, INT64_MIN}})),
      StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("-9223372036854775808 of token 2")));
  EXPECT_THAT(Prepare(Request(AxisRange(IntegerRange{0, 1, kRows}))), IsOk());
  EXPECT_THAT(Prepare(Request(AxisRange(IntegerRange{99, 1, 0}))), IsOk());
}

TEST(LookupTest, ManyLongSequencesThatFitAreNotReadToFindTheOneThatDoesNot) {
  RaggedPositions ragged;
  ragged.lengths.assign(100000, 9);
  ragged.lengths.push_back(10);
  EXPECT_THAT(Prepare(Request(ragged)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("of token 900009,")));
}

TEST(LookupTest, StrictTensorPositionsAreCheckedOnceTheirBytesAreThere) {
  const std::vector<int64_t> numbers = {0, 8, 9};
  auto prepared = Prepare(Request(PositionTensor{Dtype::kInt64, {3}}));
  ASSERT_THAT(prepared, IsOk());
  prepared->positions.data = reinterpret_cast<const std::byte*>(numbers.data());
  EXPECT_THAT(CheckLookupPositions(*prepared, "items[3]"),
              StatusIs(absl::StatusCode::kOutOfRange,
                       HasSubstr("items[3].positions: position 9 of token 2")));
}

TEST(LookupTest, ClipTakesTheNearestRow) {
  EncodeRequest request = Request(AxisRange(IntegerRange{-3, 6, 4}));  // -3, 3, 9, 15
  request.out_of_range = OutOfRange::kClip;
  const auto prepared = Prepare(request);
  ASSERT_THAT(prepared, IsOk());
  const Tensor out = Compute(*prepared);
  const int64_t rows[] = {0, 3, 8, 8};
  for (int64_t t = 0; t < 4; ++t) EXPECT_EQ(out[t * kColumns], rows[t] * kColumns / 8.0);
}

TEST(LookupTest, WrongFieldsAreNamed) {
  const IntegerRange range{0, 1, 2};
  EncodeRequest request = Request(AxisRange(range));
  request.spec.preset = "transformer";
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("item.table: set beside spec")));
  request = Request(AxisRange(RealRange{0, 1, 2}));
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("item.positions.range: real")));
  request = Request(AxisRange(range));
  request.add_to = TensorDesc{Dtype::kFloat32, {2, kColumns + 1}, {}};
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("item.add_to.shape")));
  request = Request(AxisRange(range));
  request.output_dtype = Dtype::kInt32;
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("item.output_dtype: INT32")));
  request = Request(AxisRange(range));
  request.table = "other";
  EXPECT_THAT(Prepare(request),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("item.table: no such table")));
  request = {.positions = AxisRange(range), .out_of_range = OutOfRange::kClip};
  EXPECT_THAT(Prepare(request), StatusIs(kInvalid, HasSubstr("item.out_of_range: CLIP without")));
}

TEST(LookupTest, FingerprintIsThatOfTheTablesBytes) {
  const Positions positions = AxisRange(IntegerRange{0, 1, 1});
  const auto doubles = Prepare(Request(positions));
  const OneTable source(Counting<float>(Dtype::kFloat32));
  const auto floats = PrepareEncode(Request(positions), NoPlans, "item", &source);
  ASSERT_THAT(doubles, IsOk());
  ASSERT_THAT(floats, IsOk());
  EXPECT_EQ(doubles->table_fingerprint, Prepare(Request(positions))->table_fingerprint);
  EXPECT_NE(doubles->table_fingerprint, floats->table_fingerprint);
  EncodeRequest pinned = Request(positions);
  pinned.pins.spec_fingerprint = floats->table_fingerprint;
  EXPECT_THAT(Prepare(pinned), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("item.pins.spec_fingerprint")));
}

}  // namespace
}  // namespace phasor
