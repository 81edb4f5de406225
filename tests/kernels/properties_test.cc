// SPDX-License-Identifier: Apache-2.0
// Properties that users of position embeddings rely on, checked on the results of backends.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace phasor {
namespace {

using testing::FastestBackend;
using testing::SameBits;
using testing::Tensor;

Tensor Encode(const Spec& spec, const std::vector<double>& positions,
              Dtype dtype = Dtype::kFloat64) {
  EncodeRequest request;
  request.spec = spec;
  request.output_dtype = dtype;
  request.positions = PositionTensor{Dtype::kFloat64, {static_cast<int64_t>(positions.size())}};
  auto prepared = PrepareEncode(request, CompilePlan, "item");
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  prepared->positions.data = reinterpret_cast<const std::byte*>(positions.data());
  Tensor out(dtype, prepared->output_bytes / SizeOf(dtype));
  const Job jobs[] = {MakeEncodeJob(*prepared, nullptr, out.data())};
  EXPECT_TRUE(FastestBackend().Run(jobs).ok());
  return out;
}

// Rotates one head per position, [tokens, 1, head_dim].
Tensor Rotate(const Tensor& x, const std::vector<int64_t>& positions, Direction direction,
              const std::vector<int64_t>& from = {}) {
  const auto tokens = static_cast<int64_t>(positions.size());
  RopeRequest request;
  request.spec.preset = "rope-half-split";
  request.positions = PositionTensor{Dtype::kInt64, {tokens}};
  request.tensors = {{x.dtype(), {tokens, 1, x.count() / tokens}, {}}};
  request.direction = direction;
  if (direction == Direction::kDelta) request.from_positions = request.positions;
  auto prepared = PrepareRope(request, CompilePlan, "item");
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  prepared->positions.data = reinterpret_cast<const std::byte*>(positions.data());
  if (direction == Direction::kDelta) {
    prepared->from_positions->data = reinterpret_cast<const std::byte*>(from.data());
  }
  Tensor y(x.dtype(), x.count());
  const std::byte* const in[] = {x.data()};
  std::byte* const out[] = {y.data()};
  const Job jobs[] = {MakeRotaryJob(*prepared, in, out)};
  EXPECT_TRUE(FastestBackend().Run(jobs).ok());
  return y;
}

double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.count(); ++i) sum += a[i] * b[i];
  return sum;
}

double Norm(const Tensor& a) { return std::sqrt(Dot(a, a)); }

Tensor Random(int64_t count, uint64_t seed, Dtype dtype = Dtype::kFloat64) {
  Tensor x(dtype, count);
  x.Fill(seed);
  return x;
}

Spec Named(const char* preset, int64_t dim) {
  Spec spec;
  spec.preset = preset;
  spec.dim = dim;
  return spec;
}

// Scores are equal at equal distances, wherever the pair of tokens is: the purpose of rotary
// embeddings. Up to 10^15 the phases differ by exactly an integer times the same frequency.
TEST(PropertiesTest, ScoresDependOnTheDistanceAlone) {
  const Tensor q = Random(128, 1), k = Random(128, 2);
  for (int64_t distance : {0, 1, 7, 1000}) {
    const double want =
        Dot(Rotate(q, {distance}, Direction::kForward), Rotate(k, {0}, Direction::kForward));
    for (int64_t at : {int64_t{1}, int64_t{131071}, int64_t{1} << 32, int64_t{1000000000000000}}) {
      const double got = Dot(Rotate(q, {at + distance}, Direction::kForward),
                             Rotate(k, {at}, Direction::kForward));
      EXPECT_NEAR(got, want, 1e-13 * Norm(q) * Norm(k)) << "distance " << distance << " at " << at;
    }
  }
}

TEST(PropertiesTest, RotationKeepsTheNorm) {
  const Tensor x = Random(128, 3);
  for (int64_t p : {int64_t{1}, int64_t{4095}, int64_t{1} << 40}) {
    EXPECT_NEAR(Norm(Rotate(x, {p}, Direction::kForward)), Norm(x), 1e-14 * Norm(x));
  }
}

TEST(PropertiesTest, InverseUndoesForwardWithinTwiceTheBound) {
  for (int64_t p : {1, 131071, 16777215}) {
    const Tensor x = Random(128, 4, Dtype::kFloat32);
    const Tensor y = Rotate(Rotate(x, {p}, Direction::kForward), {p}, Direction::kInverse);
    for (int64_t j = 0; j < 64; ++j) {
      const double norm = std::hypot(x[j], x[j + 64]);
      const double bound = 2 * (testing::kRotary32 + testing::PhaseError(p, 0.16)) * norm;
      EXPECT_LE(std::abs(x[j] - y[j]), bound);
      EXPECT_LE(std::abs(x[j + 64] - y[j + 64]), bound);
    }
  }
}

// DeepSeek's pairing: interleaved input, half-split output.
TEST(PropertiesTest, InverseUndoesTheOrderOfLanesToo) {
  for (const Precision precision : {Precision::kExact, Precision::kParity}) {
    RopeRequest request;
    request.spec.preset = "deepseek-v3-hf";
    request.spec.precision = precision;
    request.positions = IntegerRange{77, 1, 1};
    request.tensors = {{Dtype::kFloat32, {1, 1, 192}, {}}};
    const Tensor x = Random(192, 9, Dtype::kFloat32);
    Tensor y = x;
    for (const Direction direction : {Direction::kForward, Direction::kInverse}) {
      request.direction = direction;
      auto prepared = PrepareRope(
          request, [](const ResolvedSpec& spec) { return CompilePlan(spec); }, "item");
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      const std::byte* const in[] = {y.data()};
      std::byte* const out[] = {y.data()};
      const Job jobs[] = {MakeRotaryJob(*prepared, in, out)};
      ASSERT_TRUE(FastestBackend().Run(jobs).ok());
    }
    for (int64_t i = 0; i < 192; ++i) EXPECT_NEAR(y[i], x[i], 1e-5) << i;
  }
}

TEST(PropertiesTest, DeltaMovesAKeyToWhereItWouldHaveBeen) {
  const Tensor k = Random(128, 5);
  const Tensor moved =
      Rotate(Rotate(k, {1000}, Direction::kForward), {131071}, Direction::kDelta, {1000});
  const Tensor direct = Rotate(k, {131071}, Direction::kForward);
  for (int64_t i = 0; i < k.count(); ++i) EXPECT_NEAR(moved[i], direct[i], 1e-14);
}

TEST(PropertiesTest, DeltaToTheSamePositionChangesNothing) {
  const Tensor k = Random(128, 6, Dtype::kBFloat16);
  EXPECT_TRUE(SameBits(k, Rotate(k, {12345}, Direction::kDelta, {12345})));
}

// enc(p + k) is enc(p) turned by an angle per pair that depends only on k.
TEST(PropertiesTest, ShiftedEncodingIsAFixedRotation) {
  const int64_t dim = 64, half = dim / 2;
  const Tensor shift = Encode(Named("timestep-sin-cos", dim), {17});
  for (double p : {0.0, 5.0, 9999.0}) {
    const Tensor at = Encode(Named("timestep-sin-cos", dim), {p, p + 17});
    for (int64_t j = 0; j < half; ++j) {
      const double s = at[j], c = at[j + half], ks = shift[j], kc = shift[j + half];
      EXPECT_NEAR(at[dim + j], s * kc + c * ks, 1e-14);
      EXPECT_NEAR(at[dim + j + half], c * kc - s * ks, 1e-14);
    }
  }
}

void ExpectDistinctRows(const Tensor& rows, int64_t dim) {
  std::set<std::vector<double>> seen;
  for (int64_t t = 0; t < rows.count() / dim; ++t) {
    std::vector<double> row(dim);
    for (int64_t c = 0; c < dim; ++c) row[c] = rows[t * dim + c];
    EXPECT_TRUE(seen.insert(row).second) << "row " << t << " repeats";
  }
}

TEST(PropertiesTest, DistinctPositionsHaveDistinctRows) {
  std::vector<double> integers, times;
  for (int i = 0; i < 5000; ++i) integers.push_back(i), times.push_back(i / 5000.0);
  ExpectDistinctRows(Encode(Named("transformer", 32), integers, Dtype::kFloat32), 32);
  ExpectDistinctRows(Encode(Named("timestep-sin-cos", 32), integers, Dtype::kFloat32), 32);
  ExpectDistinctRows(Encode(Named("flow-periods", 32), times, Dtype::kFloat32), 32);
}

TEST(PropertiesTest, ValuesStayInsideMinusOneToOne) {
  std::vector<double> positions;
  for (int i = 0; i < 3000; ++i) positions.push_back(i * 977.25);
  for (Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    const Tensor rows = Encode(Named("transformer", 64), positions, dtype);
    for (int64_t i = 0; i < rows.count(); ++i) ASSERT_LE(std::abs(rows[i]), 1.0);
  }
}

}  // namespace
}  // namespace phasor
