// SPDX-License-Identifier: Apache-2.0
// The worked examples and properties of docs/conventions.md, computed from plans without a backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <set>

#include "kernels/tensor/positions.h"
#include "tests/support/direct.h"
#include "tests/support/plans.h"
#include "tests/support/specs.h"
#include "tests/support/truth.h"

namespace phasor {
namespace {

using ::testing::DoubleNear;
using testing::Encoding;
using testing::PlanOf;
using ::testing::Pointwise;
using testing::Real;
using testing::Rotary;

constexpr double kPrinted = 0.500001e-6;  // examples are printed with six decimals

std::vector<Position> Coordinates(const std::vector<double>& coordinates) {
  std::vector<Position> at(coordinates.size());
  for (size_t a = 0; a < at.size(); ++a) EXPECT_TRUE(PositionFromDouble(coordinates[a], &at[a]));
  return at;
}

std::vector<double> Encode(const Spec& spec, const std::vector<double>& coordinates) {
  return testing::EncodeRow(*PlanOf(spec), Coordinates(coordinates));
}

std::vector<double> Rotate(const Spec& spec, const std::vector<double>& coordinates,
                           const std::vector<double>& x) {
  return testing::RotateHead(*PlanOf(spec), Coordinates(coordinates), x);
}

auto Prints(const std::vector<double>& expected) {
  return Pointwise(DoubleNear(kPrinted), expected);
}

std::vector<double> Slice(const std::vector<double>& row, size_t begin, size_t count) {
  return {row.begin() + begin, row.begin() + begin + count};
}

TEST(ConventionsTest, TransformerMatchesItsExample) {
  EXPECT_THAT(Encode(Encoding("transformer", 4), {2}),
              Prints({0.909297, -0.416147, 0.019999, 0.999800}));
}

TEST(ConventionsTest, TransformerTakesAnyBase) {
  Spec spec = Encoding("transformer", 4);
  spec.rope_theta = 100;
  EXPECT_THAT(Encode(spec, {2}), Prints({std::sin(2), std::cos(2), std::sin(0.2), std::cos(0.2)}));
}

TEST(ConventionsTest, LiteralIndexMatchesItsExample) {
  EXPECT_THAT(Encode(Encoding("transformer-literal", 4), {2}),
              Prints({0.909297, 0.999800, 0.000200, 1.000000}));
}

TEST(ConventionsTest, TimestepMatchesItsExample) {
  const Spec spec = Encoding("timestep-sin-cos", 128);
  EXPECT_THAT(Slice(Encode(spec, {10}), 0, 4), Prints({-0.544021, 0.692634, 0.937633, 0.209077}));
  EXPECT_THAT(Slice(Encode(spec, {12}), 0, 4), Prints({-0.536573, -0.823069, 0.413275, 0.998115}));
  EXPECT_THAT(Slice(Encode(spec, {16}), 0, 4), Prints({-0.287903, 0.960574, -0.538000, -0.822236}));
  EXPECT_THAT(Slice(Encode(spec, {100}), 0, 4),
              Prints({-0.506366, -0.979540, -0.397511, 0.860007}));
  EXPECT_THAT(Slice(Encode(spec, {10}), 64, 3), Prints({-0.839072, -0.721289, 0.347627}));
}

TEST(ConventionsTest, TimestepScaleMultipliesThePosition) {
  Spec spec = Encoding("timestep-sin-cos", 128);
  spec.position_scale = 1000;
  EXPECT_THAT(Slice(Encode(spec, {0.016}), 0, 4),
              Prints({-0.287903, 0.960574, -0.538000, -0.822236}));
}

TEST(ConventionsTest, CosSinTimestepSwapsTheHalvesAndPadsOddWidths) {
  const std::vector<double> sin_first = Encode(Encoding("timestep-sin-cos", 8), {10});
  const std::vector<double> cos_first = Encode(Encoding("timestep-cos-sin", 9), {10});
  EXPECT_EQ(Slice(cos_first, 0, 4), Slice(sin_first, 4, 4));
  EXPECT_EQ(Slice(cos_first, 4, 4), Slice(sin_first, 0, 4));
  EXPECT_EQ(cos_first[8], 0);
}

TEST(ConventionsTest, DdpmTimestepEndsAtOneTenThousandth) {
  const std::vector<double> row = Encode(Encoding("ddpm-timestep", 8), {10});
  EXPECT_NEAR(row[0], std::sin(10.0), 1e-14);
  EXPECT_NEAR(row[3], std::sin(10.0 / 10000), 1e-16);
}

TEST(ConventionsTest, FlowMatchingMatchesItsExample) {
  EXPECT_THAT(Encode(Encoding("flow-periods", 8), {0.37}),
              Prints({0, 1, -0.453990, 0.549023, -1, 0, 0.891007, 0.835807}));
}

TEST(ConventionsTest, FlowMatchingSiblingMatchesItsExample) {
  EXPECT_THAT(Encode(Encoding("flow-periods-interleaved", 8), {0.37}),
              Prints({0, -1, 0.314482, -0.949263, -0.453392, 0.891311, -0.126366, -0.991984}));
}

TEST(ConventionsTest, FlowMatchingOfOnePairHasTheSmallestPeriod) {
  EXPECT_THAT(Encode(Encoding("flow-periods", 2), {0.001}), Prints({1, 0}));
}

TEST(ConventionsTest, TwoAxesMatchTheirExamples) {
  EXPECT_THAT(
      Encode(Encoding("grid-2d-concat", 8), {1, 2}),
      Prints({0.841471, 0.540302, 0.010000, 0.999950, 0.909297, -0.416147, 0.019999, 0.999800}));
  EXPECT_THAT(Encode(Encoding("grid-2d-sum", 4), {1, 2}),
              Prints({1.750768, 0.124155, 0.029999, 1.999750}));
}

TEST(ConventionsTest, TwoAxisPresetsDifferInOrderAlone) {
  const double s1 = std::sin(1), s2 = std::sin(0.01), c1 = std::cos(1), c2 = std::cos(0.01);
  const double S1 = std::sin(2), S2 = std::sin(0.02), C1 = std::cos(2), C2 = std::cos(0.02);
  EXPECT_THAT(Encode(Encoding("mae-2d", 8), {1, 2}), Prints({s1, s2, c1, c2, S1, S2, C1, C2}));
  EXPECT_THAT(Encode(Encoding("timm-2d", 8), {1, 2}), Prints({s1, s2, S1, S2, c1, c2, C1, C2}));
}

TEST(ConventionsTest, RopeMatchesItsExamples) {
  EXPECT_THAT(Rotate(Rotary("rope-interleaved", 4), {2}, {1, 2, 3, 4}),
              Prints({-2.234742, 0.077004, 2.919405, 4.059196}));
  EXPECT_THAT(Rotate(Rotary("rope-half-split", 4), {2}, {1, 2, 3, 4}),
              Prints({-3.144039, 1.919605, -0.339143, 4.039197}));
}

TEST(ConventionsTest, RopePairingsArePermutationsOfEachOther) {
  Spec to_half = Rotary("rope-interleaved", 4);
  to_half.pairing_out = Pairing::kHalfSplit;
  const std::vector<double> y = Rotate(Rotary("rope-interleaved", 4), {2}, {1, 2, 3, 4});
  EXPECT_EQ(Rotate(to_half, {2}, {1, 2, 3, 4}), (std::vector<double>{y[0], y[2], y[1], y[3]}));
}

TEST(ConventionsTest, PartialRopeLeavesTheOtherLanesAlone) {
  Spec spec = Rotary("rope-interleaved", 8);
  spec.rotary_dim = 4;
  spec.rotary_begin = 3;
  const std::vector<double> y = Rotate(spec, {2}, {10, 11, 12, 1, 2, 3, 4, 13});
  EXPECT_THAT(y, Prints({10, 11, 12, -2.234742, 0.077004, 2.919405, 4.059196, 13}));
}

TEST(ConventionsTest, RopeByAxesTurnsEachBlockWithItsOwnAxis) {
  Spec spec = Rotary("rope-2d", 8);
  const std::vector<double> y = Rotate(spec, {2, 0}, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_THAT(y, Prints({-2.234742, 0.077004, 2.919405, 4.059196, 5, 6, 7, 8}));
  const std::vector<double> z = Rotate(spec, {0, 2}, {5, 6, 7, 8, 1, 2, 3, 4});
  EXPECT_THAT(z, Prints({5, 6, 7, 8, -2.234742, 0.077004, 2.919405, 4.059196}));
}

TEST(ConventionsTest, FluxLeavesTextAtTheOriginUnturned) {
  std::vector<double> x(128);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i) - 60;
  EXPECT_EQ(Rotate(Rotary("flux", 128), {0, 0, 0}, x), x);
  const std::vector<double> image = Rotate(Rotary("flux", 128), {0, 3, 5}, x);
  EXPECT_EQ(Slice(image, 0, 16), Slice(x, 0, 16));
  EXPECT_NEAR(image[16], x[16] * std::cos(3) - x[17] * std::sin(3), 1e-12);
  EXPECT_NEAR(image[72], x[72] * std::cos(5) - x[73] * std::sin(5), 1e-12);
}

// Accuracy against the formulas, evaluated from the definition and not through a plan.

TEST(ConventionsTest, EncodingsAreTrueAtLargePositions) {
  const Spec spec = Encoding("transformer", 64);
  double worst = 0;
  for (const double position : {131071.0, 1048575.0, 1e7, 4294967296.0}) {
    const std::vector<double> row = Encode(spec, {position});
    for (int k = 0; k < 32; ++k) {
      const Real turns = testing::GeometricTurns(Real(position), 10000, Real(k) / 32);
      const double sin_error =
          abs(Real(row[2 * k]) - testing::TrueSinTurns(turns)).convert_to<double>();
      const double cos_error =
          abs(Real(row[2 * k + 1]) - testing::TrueCosTurns(turns)).convert_to<double>();
      const double bound = std::exp2(-51) + 2 * std::numbers::pi * position * std::exp2(-65);
      EXPECT_LE(std::max(sin_error, cos_error), bound) << position << " " << k;
      worst = std::max({worst, sin_error, cos_error});
    }
  }
  std::printf("worst f64 error up to position 2^32: %.3g\n", worst);
}

TEST(ConventionsTest, FlowMatchingIsTrueToDouble) {
  const std::vector<double> row = Encode(Encoding("flow-periods", 128), {0.37});
  for (int j = 0; j < 64; ++j) {
    const Real turns = testing::PeriodTurns(Real(0.37), 4e-3, 4.0, Real(j) / 63);
    const double bound = std::exp2(-51) + 2 * std::numbers::pi * 252 * std::exp2(-64);
    EXPECT_LE(abs(Real(row[j]) - testing::TrueSinTurns(turns)), bound) << j;
    EXPECT_LE(abs(Real(row[64 + j]) - testing::TrueCosTurns(turns)), bound) << j;
  }
}

// Properties that users rely on.

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> RandomVector(std::mt19937_64& random, size_t size) {
  std::normal_distribution<double> normal;
  std::vector<double> x(size);
  for (double& value : x) value = normal(random);
  return x;
}

TEST(PropertiesTest, AttentionDependsOnTheDistanceAlone) {
  std::mt19937_64 random(1);
  for (const char* preset : {"rope-half-split", "rope-interleaved"}) {
    const auto plan = PlanOf(Rotary(preset, 64));
    const std::vector<double> q = RandomVector(random, 64);
    const std::vector<double> k = RandomVector(random, 64);
    const auto score = [&](int64_t m, int64_t n) {
      return Dot(testing::RotateHead(*plan, {{m, 0}}, q), testing::RotateHead(*plan, {{n, 0}}, k));
    };
    for (const int64_t shift : {int64_t{1}, int64_t{4095}, int64_t{1} << 40, -(int64_t{1} << 62)}) {
      EXPECT_NEAR(score(7, 3), score(7 + shift, 3 + shift), 1e-12) << shift;
    }
    EXPECT_GT(std::abs(score(7, 3) - score(8, 3)), 1e-6);
  }
}

TEST(PropertiesTest, RotationKeepsTheNorm) {
  std::mt19937_64 random(2);
  const auto plan = PlanOf(Rotary("rope-half-split", 128));
  const std::vector<double> x = RandomVector(random, 128);
  for (const int64_t p : {int64_t{1}, int64_t{1000003}, int64_t{1} << 60}) {
    const std::vector<double> y = testing::RotateHead(*plan, {{p, 0}}, x);
    EXPECT_NEAR(Dot(y, y), Dot(x, x), 1e-12);
  }
}

TEST(PropertiesTest, InverseUndoesForward) {
  std::mt19937_64 random(3);
  const auto plan = PlanOf(Rotary("rope-interleaved", 128));
  const std::vector<double> x = RandomVector(random, 128);
  const std::vector<Position> at = {{123456789, 987654321}};
  const std::vector<double> back =
      testing::RotateHead(*plan, at, testing::RotateHead(*plan, at, x), true);
  EXPECT_THAT(back, Pointwise(DoubleNear(1e-14), x));
}

TEST(PropertiesTest, EncodingOfAShiftedPositionIsAFixedRotation) {
  const auto plan = PlanOf(Encoding("transformer", 32));
  const std::vector<double> shift = testing::EncodeRow(*plan, {{17, 0}});
  for (const int64_t p : {0, 5, 100000}) {
    const std::vector<double> row = testing::EncodeRow(*plan, {{p, 0}});
    const std::vector<double> later = testing::EncodeRow(*plan, {{p + 17, 0}});
    for (size_t k = 0; k < row.size(); k += 2) {
      EXPECT_NEAR(later[k], row[k] * shift[k + 1] + row[k + 1] * shift[k], 1e-14);
      EXPECT_NEAR(later[k + 1], row[k + 1] * shift[k + 1] - row[k] * shift[k], 1e-14);
    }
  }
}

TEST(PropertiesTest, LowDimensionsAreTheFastOnes) {
  const auto plan = PlanOf(Encoding("transformer", 128));
  const auto turns = [&](int64_t pair) {
    return testing::ToReal(plan->frequency[pair]).convert_to<double>();
  };
  for (int64_t pair = 1; pair < plan->pairs; ++pair) EXPECT_LT(turns(pair), turns(pair - 1));
  EXPECT_NEAR(1 / turns(0), 6.28, 0.005);
  EXPECT_NEAR(1 / turns(63), 54410, 0.5);
}

TEST(PropertiesTest, SimilarityFallsWithDistanceButNotMonotonically) {
  const auto plan = PlanOf(Encoding("transformer", 128));
  const auto similarity = [&](int64_t distance) {
    return Dot(testing::EncodeRow(*plan, {{1000, 0}}),
               testing::EncodeRow(*plan, {{1000 + distance, 0}})) /
           64;
  };
  EXPECT_NEAR(similarity(0), 1, 1e-12);
  EXPECT_NEAR(similarity(28), 0.5587, 5e-5);
  EXPECT_NEAR(similarity(31), 0.5670, 5e-5);
}

TEST(PropertiesTest, LiteralIndexEncodingsAreNotShiftedByARotation) {
  // Neighbouring columns have different frequencies, so their norm is not 1 and no rotation can
  // keep it.
  const std::vector<double> row = Encode(Encoding("transformer-literal", 8), {2});
  EXPECT_GT(std::abs(row[0] * row[0] + row[1] * row[1] - 1), 0.1);
}

TEST(PropertiesTest, DistinctPositionsHaveDistinctBoundedRows) {
  for (const char* preset : {"transformer", "timestep-sin-cos"}) {
    const auto plan = PlanOf(Encoding(preset, 16));
    std::set<std::vector<double>> rows;
    for (int64_t p = 0; p < 5000; ++p) {
      const std::vector<double> row = testing::EncodeRow(*plan, {{p, 0}});
      EXPECT_THAT(row, ::testing::Each(::testing::AllOf(::testing::Ge(-1), ::testing::Le(1))));
      rows.insert(row);
    }
    EXPECT_EQ(rows.size(), 5000u) << preset;
  }
}

TEST(PropertiesTest, DistinctTimesHaveDistinctRows) {
  const auto plan = PlanOf(Encoding("flow-periods", 16));
  std::set<std::vector<double>> rows;
  for (int i = 0; i < 5000; ++i) rows.insert(testing::EncodeRow(*plan, Coordinates({i / 5000.0})));
  EXPECT_EQ(rows.size(), 5000u);
}

}  // namespace
}  // namespace phasor
