// SPDX-License-Identifier: Apache-2.0
// Every rope_scaling rule in 320-bit arithmetic, written in another form than in the source.
// tests/conformance compares the same rules with the upstream packages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "kernels/plan/frequencies.h"
#include "kernels/spec/fields.h"
#include "kernels/spec/spec.h"
#include "tests/support/specs.h"
#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::Real;
using testing::Resolve;
using testing::RoundToFixed;
using testing::ToFixed;
using testing::TwoPi;

constexpr int64_t kWidth = 128;
constexpr int64_t kHalf = kWidth / 2;

ResolvedSpec Scaled(double theta, RopeScaling scaling, std::optional<int64_t> length = {}) {
  Spec spec = testing::Rotary(kWidth);
  spec.rope_theta = theta;
  spec.rope_scaling = std::move(scaling);
  spec.sequence_length = length;
  return Resolve(spec);
}

// Radians per position of an unscaled pair.
Real Omega(double theta, int64_t j) { return 1 / pow(Real(theta), Real(2 * j) / kWidth); }

void ExpectFrequencies(const ResolvedSpec& spec, const std::function<Real(int64_t)>& radians) {
  const auto frequencies = FrequenciesOf(spec);
  ASSERT_TRUE(frequencies.has_value());
  for (int64_t j = 0; j < kHalf; ++j) {
    const Frequency f = (*frequencies)[j];
    EXPECT_EQ(ToFixed(f.whole, f.fraction), RoundToFixed(radians(j) / TwoPi())) << "pair " << j;
  }
}

void ExpectAmplitude(const ResolvedSpec& spec, const Real& want) {
  EXPECT_EQ(AmplitudeOf(spec), static_cast<double>(want));
}

TEST(LinearScalingTest, DividesEveryFrequency) {
  const ResolvedSpec spec = Scaled(1e6, LinearScaling{8.0});
  ExpectFrequencies(spec, [](int64_t j) { return Omega(1e6, j) / 8; });
  ExpectAmplitude(spec, 1);
}

TEST(NtkScalingTest, KeepsTheFirstPairAndDividesTheLastByTheFactor) {
  // theta factor^(d / (d - 2)): pair j is divided by factor^(2j / (d - 2)), so the last by factor.
  ExpectFrequencies(Scaled(1e4, NtkScaling{.factor = 3.0}), [](int64_t j) {
    return Omega(1e4, j) / exp(log(Real(3)) * (2 * j) / (kWidth - 2));
  });
}

TEST(NtkScalingTest, DynamicFollowsTheLengthBeyondTheOriginal) {
  const NtkScaling ntk = {.factor = 2.0, .dynamic = true, .original_max_position_embeddings = 4096};
  ExpectFrequencies(Scaled(1e4, ntk, 100), [](int64_t j) { return Omega(1e4, j); });
  ExpectFrequencies(Scaled(1e4, ntk, 4096), [](int64_t j) { return Omega(1e4, j); });
  // 2 * 3 - 1 = 5.
  ExpectFrequencies(Scaled(1e4, ntk, 3 * 4096), [](int64_t j) {
    return Omega(1e4, j) / exp(log(Real(5)) * (2 * j) / (kWidth - 2));
  });
}

TEST(MixedNtkScalingTest, WithoutBDividesPairJByAPowerOfJPlusOne) {
  ExpectFrequencies(Scaled(1e4, MixedNtkScaling{.factor = 4.0}), [](int64_t j) {
    return Omega(1e4, j) / exp(log(Real(4)) * (2 * j + 2) / kWidth);
  });
}

TEST(MixedNtkScalingTest, WithBDividesTheLastPairByTheFactor) {
  ExpectFrequencies(Scaled(1e4, MixedNtkScaling{.factor = 4.0, .b = 0.625}), [](int64_t j) {
    return Omega(1e4, j) / pow(Real(4), pow(Real(j + 1) / kHalf, Real(0.625)));
  });
}

// The pair that makes that many turns over the original length.
Real PairOf(double theta, int64_t original, double turns) {
  return log(Real(original) / turns / TwoPi()) / log(Real(theta)) * kHalf;
}

Real Clamped(const Real& x) { return std::clamp(x, Real(0), Real(1)); }

Real Interpolated(const Real& omega, const Real& factor, Real ramp) {
  ramp = Clamped(ramp);
  return omega * (1 + ramp * (1 / factor - 1));
}

TEST(YarnScalingTest, RampsBetweenRoundedPairs) {
  const YarnScaling yarn = {.factor = 4.0, .original_max_position_embeddings = 32768};
  const Real low = floor(PairOf(1e6, 32768, 32));
  const Real high = ceil(PairOf(1e6, 32768, 1));
  EXPECT_EQ(low, 23);
  EXPECT_EQ(high, 40);
  const ResolvedSpec spec = Scaled(1e6, yarn);
  ExpectFrequencies(
      spec, [&](int64_t j) { return Interpolated(Omega(1e6, j), 4, (j - low) / (high - low)); });
  ExpectAmplitude(spec, 1 + Real(0.1) * log(Real(4)));
}

TEST(YarnScalingTest, RampsBetweenRealPairsWithoutTruncation) {
  const YarnScaling yarn = {
      .factor = 32.0, .original_max_position_embeddings = 4096, .truncate = false};
  const Real low = PairOf(150000, 4096, 32);
  const Real high = PairOf(150000, 4096, 1);
  ExpectFrequencies(Scaled(150000, yarn), [&](int64_t j) {
    return Interpolated(Omega(150000, j), 32, (j - low) / (high - low));
  });
}

TEST(YarnScalingTest, ARampOfNoWidthGetsOneThousandth) {
  const YarnScaling yarn = {.factor = 2.0,
                            .original_max_position_embeddings = 4096,
                            .beta_fast = 1.0,
                            .beta_slow = 1.0,
                            .truncate = false};
  const Real edge = PairOf(1e4, 4096, 1);
  ExpectFrequencies(Scaled(1e4, yarn),
                    [&](int64_t j) { return Interpolated(Omega(1e4, j), 2, (j - edge) * 1000); });
}

TEST(YarnScalingTest, ClampsTheRampToThePairsUpstreamClampsItTo) {
  // Far beyond d - 1 at the slow end, and below 0 at the fast end.
  const YarnScaling yarn = {
      .factor = 2.0, .original_max_position_embeddings = 64, .beta_fast = 1e9, .beta_slow = 1e-9};
  ExpectFrequencies(Scaled(10, yarn), [&](int64_t j) {
    return Interpolated(Omega(10, j), 2, Real(j) / (kWidth - 1));
  });
}

TEST(YarnScalingTest, InterpolatesLogarithmsWhenAsked) {
  const YarnScaling yarn = {
      .factor = 4.0, .original_max_position_embeddings = 32768, .log_interpolation = true};
  ExpectFrequencies(Scaled(1e6, yarn), [&](int64_t j) {
    const Real ramp = Clamped(Real(j - 23) / 17);
    return Omega(1e6, j) / pow(Real(4), ramp);
  });
}

TEST(YarnScalingTest, ExtrapolationFactorMultipliesTheShareThatIsKept) {
  const YarnScaling yarn = {
      .factor = 4.0, .original_max_position_embeddings = 32768, .extrapolation_factor = 0.25};
  ExpectFrequencies(Scaled(1e6, yarn), [&](int64_t j) {
    const Real keep = (1 - Clamped(Real(j - 23) / 17)) / 4;
    return Omega(1e6, j) * (keep + (1 - keep) / 4);
  });
}

TEST(YarnScalingTest, AmplitudeFollowsItsFields) {
  const YarnScaling plain = {.factor = 40.0, .original_max_position_embeddings = 4096};
  const Real g = 1 + Real(0.1) * log(Real(40));
  ExpectAmplitude(Scaled(1e4, plain), g);
  YarnScaling yarn = plain;
  yarn.mscale = 0.707;
  ExpectAmplitude(Scaled(1e4, yarn), g);  // both fields or neither
  yarn.mscale_all_dim = 0.707;
  ExpectAmplitude(Scaled(1e4, yarn), 1);
  yarn.mscale_all_dim = 0.5;
  ExpectAmplitude(Scaled(1e4, yarn), (1 + Real(0.1) * Real(0.707) * log(Real(40))) /
                                         (1 + Real(0.1) * Real(0.5) * log(Real(40))));
  yarn = plain;
  yarn.attn_factor = 0.5;
  ExpectAmplitude(Scaled(1e4, yarn), g / 2);
  yarn.mscale_coefficient = 0.07;
  ExpectAmplitude(Scaled(1e4, yarn), (1 + Real(0.07) * log(Real(40))) / 2);
  yarn.attention_factor = 1.25;
  ExpectAmplitude(Scaled(1e4, yarn), 1.25);
  yarn = plain;
  yarn.factor = 0.5;
  ExpectAmplitude(Scaled(1e4, yarn), 1);
}

TEST(YarnScalingTest, AmplitudeMultipliesTheSpecsOwn) {
  Spec spec = testing::Rotary(kWidth);
  spec.rope_scaling = YarnScaling{.factor = 4.0, .original_max_position_embeddings = 4096};
  spec.attention_factor = 3;
  ExpectAmplitude(Resolve(spec), 3 * (1 + Real(0.1) * log(Real(4))));
}

TEST(Llama3ScalingTest, FollowsTheWavelengthsOfUpstream) {
  const Llama3Scaling llama3 = {8.0, 1.0, 4.0, 8192};
  int kept = 0, mixed = 0, divided = 0;
  ExpectFrequencies(Scaled(500000, llama3), [&](int64_t j) -> Real {
    const Real omega = Omega(500000, j);
    const Real wavelength = TwoPi() / omega;
    if (wavelength < Real(8192) / 4) return ++kept, omega;
    if (wavelength > Real(8192) / 1) return ++divided, omega / 8;
    const Real smooth = (8192 / wavelength - 1) / 3;
    return ++mixed, (1 - smooth) * omega / 8 + smooth * omega;
  });
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(mixed, 6);
  EXPECT_EQ(divided, 29);
}

LongRopeScaling PhiLongRope() {
  LongRopeScaling longrope = {.original_max_position_embeddings = 4096, .factor = 32.0};
  for (int64_t j = 0; j < kHalf; ++j) {
    longrope.short_factor.push_back(1 + 0.01 * static_cast<double>(j));
    longrope.long_factor.push_back(1 + 0.5 * static_cast<double>(j));
  }
  return longrope;
}

TEST(LongRopeScalingTest, SwitchesDivisorsAfterTheOriginalLength) {
  const LongRopeScaling phi = PhiLongRope();
  ExpectFrequencies(Scaled(1e4, phi, 4096),
                    [&](int64_t j) { return Omega(1e4, j) / Real(phi.short_factor[j]); });
  ExpectFrequencies(Scaled(1e4, phi, 4097),
                    [&](int64_t j) { return Omega(1e4, j) / Real(phi.long_factor[j]); });
}

TEST(LongRopeScalingTest, AmplitudeFollowsItsFields) {
  LongRopeScaling phi = PhiLongRope();
  // ln 32 / ln 4096 = 5 / 12.
  ExpectAmplitude(Scaled(1e4, phi, 1), sqrt(Real(17) / 12));
  ExpectAmplitude(Scaled(1e4, phi, 131072), sqrt(Real(17) / 12));
  phi.factor = 0.5;
  ExpectAmplitude(Scaled(1e4, phi, 1), 1);
  phi.long_mscale = 1.5;
  ExpectAmplitude(Scaled(1e4, phi, 1), 1);
  ExpectAmplitude(Scaled(1e4, phi, 4097), 1.5);
  phi.attention_factor = 1.25;
  ExpectAmplitude(Scaled(1e4, phi, 1), 1.25);
  ExpectAmplitude(Scaled(1e4, phi, 4097), 1.5);
}

// Every number of every rule, as extreme as ResolveSpec allows: there is a result or an error.
TEST(RopeScalingTest, ExtremesNeitherThrowNorHang) {
  constexpr double kExtremes[] = {5e-324, 1e-300, 1, 1e300, 1.7e308, -1.7e308, 0};
  const YarnScaling yarn = {.factor = 4.0, .original_max_position_embeddings = 4096};
  const Llama3Scaling llama3 = {8.0, 1.0, 4.0, 8192};
  int answered = 0;
  const auto attempt = [&](RopeScaling scaling) {
    for (const double theta : {5e-324, 10000.0, 1.7e308}) {
      Spec spec = testing::Rotary(kWidth);
      spec.rope_theta = theta;
      spec.rope_scaling = scaling;
      const auto resolved = ResolveSpec(spec);
      if (!resolved.ok()) continue;
      AmplitudeOf(*resolved);
      answered += FrequenciesOf(*resolved).has_value();
    }
  };
  for (const double x : kExtremes) {
    attempt(LinearScaling{x});
    attempt(NtkScaling{.factor = x});
    attempt(MixedNtkScaling{.factor = x});
    for (const double y : kExtremes) attempt(MixedNtkScaling{.factor = x, .b = y});
    VisitFields(&yarn, [&](const char*, auto member) {
      if constexpr (std::is_same_v<decltype(member), std::optional<double> YarnScaling::*>) {
        for (const bool log_interpolation : {false, true}) {
          YarnScaling rule = yarn;
          rule.*member = x;
          rule.log_interpolation = log_interpolation;
          attempt(rule);
        }
      }
    });
    VisitFields(&llama3, [&](const char*, auto member) {
      if constexpr (std::is_same_v<decltype(member), std::optional<double> Llama3Scaling::*>) {
        Llama3Scaling rule = llama3;
        rule.*member = x;
        attempt(rule);
      }
    });
  }
  EXPECT_GT(answered, 50);
}

}  // namespace
}  // namespace phasor
