// SPDX-License-Identifier: Apache-2.0
// Attention biases from request to bytes: every backend against upstream's formulas in f64, and
// every request that must be refused.
#include "kernels/request/bias.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tests/support/backends.h"
#include "tests/support/bias_golden.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tables.h"
#include "tests/support/tensors.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::phasor::testing::Tensor;
using ::testing::_;
using ::testing::HasSubstr;

// Three queries from position 100 on and `keys` keys from 97 on, as in decoding with a cache.
BiasRequest Request(const char* preset, int64_t heads, int64_t keys) {
  BiasRequest request;
  request.spec.preset = preset;
  request.heads = heads;
  request.query_positions = AxisRange(IntegerRange{100, 1, 3});
  request.key_positions = AxisRange(IntegerRange{97, 1, keys});
  return request;
}

// Values that every compute dtype holds exactly.
Tensor TableOf(Dtype dtype, int64_t rows, int64_t heads) {
  Tensor table(dtype, rows * heads, 3);
  for (int64_t i = 0; i < rows * heads; ++i) table.Set(i, (i * 37 % 255 - 127) * 0.125);
  return table;
}

// Runs the request on every backend, checks that they agree, and returns the result.
Tensor Compute(const BiasRequest& request, const Tensor* table = nullptr,
               const Tensor* add_to = nullptr) {
  auto prepared = PrepareBias(request, nullptr, "item");
  EXPECT_THAT(prepared, IsOk());
  if (!prepared.ok()) return Tensor(Dtype::kFloat32, 0);
  EXPECT_THAT(CheckBiasPositions(*prepared, "item"), IsOk());
  std::vector<Tensor> results;
  for (auto& [name, backend] : testing::AllBackends()) {
    Tensor out(request.output_dtype, prepared->output_bytes / SizeOf(request.output_dtype), 1);
    const Job job = MakeBiasJob(*prepared, table == nullptr ? nullptr : table->data(),
                                add_to == nullptr ? nullptr : add_to->data(), out.data());
    EXPECT_THAT(backend->Run({job}), IsOk());
    EXPECT_TRUE(out.GuardsIntact()) << name;
    if (!results.empty()) {
      EXPECT_EQ(std::memcmp(out.data(), results[0].data(), out.size_bytes()), 0) << name;
    }
    results.push_back(std::move(out));
  }
  return results[0];
}

// Expects value(head, query, key), rounded once to f32 (or kept in f64) and then to the dtype.
void ExpectValues(const BiasRequest& request, const Tensor& out, int64_t queries, int64_t keys,
                  const std::function<double(int64_t, int64_t, int64_t)>& value) {
  Tensor expected(request.output_dtype, request.heads * queries * keys, 1);
  for (int64_t i = 0; i < expected.count(); ++i) {
    expected.Set(i, value(i / (queries * keys), i / keys % queries, i % keys));
  }
  EXPECT_TRUE(testing::SameBits(out, expected)) << Name(request.output_dtype);
}

TEST(BiasTest, AlibiIsMinusSlopeTimesDistanceInEveryType) {
  for (const Dtype dtype : testing::kFloatDtypes) {
    for (const int64_t keys : {1, 5, 511, 512, 513, 1030}) {
      BiasRequest request = Request("alibi", 4, keys);
      request.output_dtype = dtype;
      ExpectValues(request, Compute(request), 3, keys, [](int64_t h, int64_t q, int64_t k) {
        return -std::exp2(-2.0 * static_cast<double>(h + 1)) *
               std::abs(static_cast<double>(100 + q - 97 - k));
      });
    }
  }
}

TEST(BiasTest, BloomsFormIsSlopeTimesKeyForEveryQuery) {
  const BiasRequest request = Request("bloom", 8, 9);
  ExpectValues(request, Compute(request), 3, 9, [](int64_t h, int64_t, int64_t k) {
    return std::exp2(-static_cast<double>(h + 1)) * static_cast<double>(97 + k);
  });
}

TEST(BiasTest, BothFormsOfAlibiDifferByAConstantPerRowBeforeTheQuery) {
  BiasRequest request = Request("alibi", 8, 4);  // keys 97 to 100, queries from 100 on
  const Tensor distance = Compute(request);
  request.spec.preset = "bloom";
  const Tensor absolute = Compute(request);
  for (int64_t row = 0; row < 8 * 3; ++row) {
    for (int64_t k = 1; k < 4; ++k) {
      EXPECT_EQ(distance[row * 4 + k] - distance[row * 4],
                absolute[row * 4 + k] - absolute[row * 4]);
    }
  }
}

TEST(BiasTest, T5LooksItsBucketUpForEachHead) {
  for (const auto& golden : testing::kT5Golden) {
    for (const Dtype dtype : testing::kFloatDtypes) {
      for (const Dtype table_dtype : testing::kFloatDtypes) {
        BiasRequest request = Request("t5", 5, 40);
        request.spec.num_buckets = golden.buckets;
        request.spec.max_distance = golden.max_distance;
        request.spec.bidirectional = golden.bidirectional;
        request.output_dtype = dtype;
        request.table_values = TensorDesc{table_dtype, {golden.buckets, 5}, {}};
        const Tensor table = TableOf(table_dtype, golden.buckets, 5);
        ExpectValues(request, Compute(request, &table), 3, 40,
                     [&](int64_t h, int64_t q, int64_t k) {
                       return table[testing::GoldenBucket(golden.runs, 97 + k - 100 - q) * 5 + h];
                     });
      }
    }
  }
}

TEST(BiasTest, ClippedTableIsIndexedByKeyMinusQuery) {
  BiasRequest request = Request("", 2, 12);
  request.spec = {.family = BiasFamily::kClipped, .max_distance = 3};
  request.table_values = TensorDesc{Dtype::kFloat32, {7, 2}, {}};
  const Tensor table = TableOf(Dtype::kFloat32, 7, 2);
  ExpectValues(request, Compute(request, &table), 3, 12, [&](int64_t h, int64_t q, int64_t k) {
    return table[(std::clamp<int64_t>(97 + k - 100 - q, -3, 3) + 3) * 2 + h];
  });
}

TEST(BiasTest, SwinIndicesOfAWholeWindowAreTimms) {
  for (const auto& golden : testing::kSwinGolden) {
    BiasRequest request;
    request.spec = {.family = BiasFamily::kSwin, .window = {golden.height, golden.width}};
    request.heads = 1;
    request.output_dtype = Dtype::kInt64;
    const Tensor out = Compute(request);
    ASSERT_EQ(out.size_bytes(), static_cast<int64_t>(8 * golden.index.size()));
    EXPECT_EQ(std::memcmp(out.data(), golden.index.data(), out.size_bytes()), 0);

    const int64_t rows = (2 * golden.height - 1) * (2 * golden.width - 1);
    request.heads = 3;
    request.output_dtype = Dtype::kFloat32;
    request.table_values = TensorDesc{Dtype::kFloat32, {rows, 3}, {}};
    const Tensor table = TableOf(Dtype::kFloat32, rows, 3);
    const int64_t tokens = golden.height * golden.width;
    ExpectValues(request, Compute(request, &table), tokens, tokens,
                 [&](int64_t h, int64_t q, int64_t k) {
                   return table[golden.index[q * tokens + k] * 3 + h];
                 });
  }
}

TEST(BiasTest, DebertaGivesSignedBucketsOfQueryMinusKey) {
  const auto& golden = testing::kDebertaGolden[0];
  BiasRequest request = Request("deberta-v2", 1, 1200);
  request.spec.num_buckets = golden.buckets;
  request.spec.max_distance = golden.max_distance;
  request.query_positions = AxisRange(IntegerRange{600, 1, 3});
  request.output_dtype = Dtype::kInt32;
  const Tensor out = Compute(request);
  for (int64_t i = 0; i < 3 * 1200; ++i) {
    int32_t bucket = 0;
    std::memcpy(&bucket, out.data() + 4 * i, 4);
    EXPECT_EQ(bucket, testing::GoldenBucket(golden.runs, 600 + i / 1200 - 97 - i % 1200)) << i;
  }
}

TEST(BiasTest, RowsOfTheTableNeedNoHeads) {
  BiasRequest request = Request("deberta-v2", 0, 3);
  request.output_dtype = Dtype::kInt32;
  const auto prepared = PrepareBias(request, nullptr, "item");
  ASSERT_THAT(prepared, testing::IsOk());
  EXPECT_EQ(prepared->output.shape[0], 1);
  request.output_dtype = Dtype::kFloat32;
  EXPECT_THAT(PrepareBias(request, nullptr, "item"),
              StatusIs(kInvalid, HasSubstr("item.heads: 0; must be in [1")));
}

TEST(BiasTest, ScoresAreAddedAfterTheBiasIsRounded) {
  for (const Dtype dtype : testing::kFloatDtypes) {
    BiasRequest request = Request("alibi", 3, 70);
    request.output_dtype = dtype;
    request.add_to = TensorDesc{dtype, {3, 3, 70}, {}};
    Tensor scores(dtype, 3 * 3 * 70, 5);
    scores.Fill(1);
    const std::vector<double> slopes = AlibiSlopes(3);
    const Tensor out = Compute(request, nullptr, &scores);
    ExpectValues(request, out, 3, 70, [&](int64_t h, int64_t q, int64_t k) {
      const double distance = std::abs(static_cast<double>(3 + q - k));
      const double score = scores[(h * 3 + q) * 70 + k];
      if (dtype == Dtype::kFloat64) return score - slopes[h] * distance;
      const float bias = static_cast<float>(slopes[h]) * static_cast<float>(distance);
      return static_cast<double>(static_cast<float>(score) - bias);
    });
  }
}

TEST(BiasTest, StridedScoresAreReadWhereTheyLie) {
  BiasRequest request = Request("bloom", 2, 4);
  request.add_to = TensorDesc{Dtype::kFloat32, {2, 3, 4}, {5, 10, 1}};  // queries before heads
  Tensor scores(Dtype::kFloat32, 5 + 2 * 10 + 4, 1);
  for (int64_t i = 0; i < scores.count(); ++i) scores.Set(i, static_cast<double>(1000 * i));
  const std::vector<double> slopes = AlibiSlopes(2);
  ExpectValues(request, Compute(request, nullptr, &scores), 3, 4,
               [&](int64_t h, int64_t q, int64_t k) {
                 return scores[h * 5 + q * 10 + k] + slopes[h] * static_cast<double>(97 + k);
               });
}

TEST(BiasTest, NoQueriesOrNoKeysGiveAnEmptyTensor) {
  BiasRequest request = Request("alibi", 2, 0);
  EXPECT_EQ(Compute(request).count(), 0);
  request = Request("alibi", 2, 5);
  request.query_positions = AxisRange(IntegerRange{0, 1, 0});
  EXPECT_EQ(Compute(request).count(), 0);
}

TEST(BiasTest, DistancesOfFarPositionsDoNotOverflow) {
  constexpr int64_t kFar = (int64_t{1} << 62) - 1;
  BiasRequest request = Request("t5", 1, 2);
  request.query_positions = AxisRange(IntegerRange{-kFar, 1, 1});
  request.key_positions = AxisRange(IntegerRange{kFar, 0, 2});
  request.output_dtype = Dtype::kInt32;
  const Tensor out = Compute(request);
  int32_t bucket = 0;
  std::memcpy(&bucket, out.data(), 4);
  EXPECT_EQ(bucket, 31);
  request.key_positions = AxisRange(IntegerRange{kFar + 1, 0, 2});
  const auto prepared = PrepareBias(request, nullptr, "item");
  ASSERT_THAT(prepared, IsOk());
  EXPECT_THAT(CheckBiasPositions(*prepared, "item"),
              StatusIs(kInvalid, HasSubstr("item.key_positions: position 4611686018427387904; "
                                           "must be below 2^62")));
}

TEST(BiasTest, OffsetsOutsideTheWindowAreOutOfRange) {
  BiasRequest request;
  request.spec.preset = "swin";
  request.heads = 1;
  request.output_dtype = Dtype::kInt32;
  request.query_positions = PositionGrid{{IntegerRange{0, 1, 7}, IntegerRange{1, 1, 7}}};
  const auto prepared = PrepareBias(request, nullptr, "item");
  ASSERT_THAT(prepared, IsOk());
  EXPECT_THAT(CheckBiasPositions(*prepared, "item"),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "item.query_positions: up to 7 from the keys on axis 1; must be below the "
                       "window's 7"));
}

// The error of a valid T5 request after `spoil` has changed it.
absl::Status Refusal(const std::function<void(BiasRequest&)>& spoil) {
  BiasRequest request = Request("t5", 8, 16);
  request.table_values = TensorDesc{Dtype::kFloat32, {32, 8}, {}};
  EXPECT_THAT(PrepareBias(request, nullptr, "item"), IsOk());
  spoil(request);
  return PrepareBias(request, nullptr, "item").status();
}

TEST(BiasTest, EachWrongFieldIsNamedWithWhatIsAccepted) {
  EXPECT_THAT(Refusal([](auto& r) { r.heads = 0; }),
              StatusIs(kInvalid, "item.heads: 0; must be in [1, 65536]"));
  EXPECT_THAT(
      Refusal([](auto& r) { r.heads = 12; }),
      StatusIs(kInvalid, "item.table_values.shape: 8 heads; must be as many as heads (12)"));
  EXPECT_THAT(Refusal([](auto& r) { r.spec.num_buckets = 64; }),
              StatusIs(kInvalid, "item.table_values.shape: 32 rows; must be 64 for T5"));
  EXPECT_THAT(Refusal([](auto& r) { r.table_values->shape = {32}; }),
              StatusIs(kInvalid, HasSubstr("item.table_values.shape: [32]; must be dense")));
  EXPECT_THAT(Refusal([](auto& r) { r.table_values->dtype = Dtype::kInt32; }),
              StatusIs(kInvalid, HasSubstr("item.table_values.dtype: INT32")));
  EXPECT_THAT(Refusal([](auto& r) { r.table_values.reset(); }),
              StatusIs(kInvalid, "item.table: not set; must be given, or table_values"));
  EXPECT_THAT(Refusal([](auto& r) { r.table = "t"; }),
              StatusIs(kInvalid, HasSubstr("item.table: set beside table_values")));
  EXPECT_THAT(Refusal([](auto& r) { r.query_positions.reset(); }),
              StatusIs(kInvalid, "item.query_positions: not set; must be given"));
  EXPECT_THAT(Refusal([](auto& r) {
                r.key_positions = AxisRange(RealRange{0, 1, 2});
              }),
              StatusIs(kInvalid, HasSubstr("item.key_positions.range: real positions")));
  EXPECT_THAT(Refusal([](auto& r) {
                r.key_positions = PositionTensor{Dtype::kInt64, {2, 3}};
              }),
              StatusIs(kInvalid, "item.key_positions: batch 2; must be one sequence"));
  EXPECT_THAT(Refusal([](auto& r) { r.output_dtype = Dtype::kFloat8E4M3; }),
              StatusIs(kInvalid, HasSubstr("item.output_dtype: FLOAT8_E4M3; must be")));
  EXPECT_THAT(Refusal([](auto& r) { r.output_dtype = Dtype::kInt32; }),
              StatusIs(kInvalid, HasSubstr("item.heads: 8; must be 1 for INT32 output")));
  EXPECT_THAT(Refusal([](auto& r) {
                r.output_dtype = Dtype::kInt32;
                r.heads = 1;
              }),
              StatusIs(kInvalid, HasSubstr("item.table: set; must be only for values")));
  EXPECT_THAT(Refusal([](auto& r) { r.spec.preset = "alibi"; }),
              StatusIs(kInvalid, HasSubstr("item.table: set; must be only for values")));
  EXPECT_THAT(Refusal([](auto& r) { r.spec.preset = "deberta-v2"; }),
              StatusIs(kInvalid, HasSubstr("DEBERTA gives buckets; must be INT32 or INT64")));
  EXPECT_THAT(Refusal([](auto& r) {
                r.add_to = TensorDesc{Dtype::kFloat32, {8, 16, 3}, {}};
              }),
              StatusIs(kInvalid,
                       "item.add_to.shape: [8, 16, 3]; must be [heads, queries, keys] = [8, 3, "
                       "16]"));
  EXPECT_THAT(Refusal([](auto& r) {
                r.add_to = TensorDesc{Dtype::kFloat16, {8, 3, 16}, {}};
              }),
              StatusIs(kInvalid, "item.add_to.dtype: FLOAT16; must be the output's FLOAT32"));
}

TEST(BiasTest, SizesThatOverflowAreRefusedBeforeAnythingIsAllocated) {
  EXPECT_THAT(Refusal([](auto& r) {
                r.query_positions = AxisRange(IntegerRange{0, 0, int64_t{1} << 40});
                r.key_positions = r.query_positions;
              }),
              StatusIs(kInvalid, HasSubstr("passes 2^62 bytes")));
}

TEST(BiasTest, FingerprintTellsRulesApartAndCanBePinned) {
  const auto prepared = PrepareBias(Request("alibi", 8, 4), nullptr, "item");
  const auto absolute = PrepareBias(Request("bloom", 8, 4), nullptr, "item");
  const auto fewer = PrepareBias(Request("alibi", 4, 4), nullptr, "item");
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->fingerprint.size(), 32u);
  EXPECT_NE(prepared->fingerprint, absolute->fingerprint);
  EXPECT_NE(prepared->fingerprint, fewer->fingerprint);
  BiasRequest pinned = Request("alibi", 8, 99);
  pinned.pins.spec_fingerprint = prepared->fingerprint;
  EXPECT_THAT(PrepareBias(pinned, nullptr, "item"), IsOk());
  pinned.heads = 4;
  EXPECT_THAT(
      PrepareBias(pinned, nullptr, "item"),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("item.pins.spec_fingerprint")));
}

TEST(BiasTest, FingerprintIsOfTheBytesOfAStoredTable) {
  BiasRequest request = Request("t5", 2, 4);
  request.table = "t";
  std::vector<float> values(64, 1.0f);
  const auto prepare = [&] {
    const testing::OneTable tables(testing::MakeTable("t", Dtype::kFloat32, 32, 2, values));
    return PrepareBias(request, &tables, "item");
  };
  const auto before = prepare();
  ASSERT_THAT(before, IsOk());
  request.pins.spec_fingerprint = before->fingerprint;
  EXPECT_THAT(prepare(), IsOk());
  values[63] = 2.0f;  // another table of the same name
  EXPECT_THAT(prepare(), StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

}  // namespace
}  // namespace phasor
