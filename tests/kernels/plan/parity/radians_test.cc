// SPDX-License-Identifier: Apache-2.0
// Sine and cosine of radians, compared with 1400-bit arithmetic.
#include "kernels/plan/parity/radians.h"

#include <gtest/gtest.h>

#include <boost/math/constants/constants.hpp>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <random>
#include <vector>

namespace phasor::parity {
namespace {

namespace mp = boost::multiprecision;
using Wide = mp::number<mp::cpp_bin_float<1400, mp::digit_base_2>, mp::et_off>;

Wide Remainder(double radians) {
  static const Wide two_pi = boost::math::constants::two_pi<Wide>();
  const Wide turns = Wide(radians) / two_pi;
  return (turns - floor(turns)) * two_pi;
}

// Angles that are hard for other implementations: multiples of pi, powers of two, both ends.
std::vector<double> Angles() {
  std::vector<double> angles = {1.0,
                                3.141592653589793,
                                1e-8,
                                1e5,
                                131071.0,
                                1e22,
                                6381956970095103.0 * 0x1p797,
                                1.7976931348623157e308};
  for (int e = -70; e < 1024; e += 7) angles.push_back(std::ldexp(1.2345678901234567, e));
  for (int k = 1; k < 40; ++k) {
    angles.push_back(static_cast<float>(k * 1.5707963267948966));
    angles.push_back(k * 1.5707963267948966);
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    angles.push_back(
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 90) - 80));
  }
  return angles;
}

TEST(RadiansTest, SineAndCosineAreTrueToTwoToTheMinus51ForEveryDouble) {
  for (const double magnitude : Angles()) {
    for (const double radians : {magnitude, -magnitude}) {
      const SinCos<double> got = SinCosOfRadians(radians);
      const Wide rest = Remainder(radians);
      EXPECT_LE(abs(Wide(got.sin) - sin(rest)), Wide(0x1p-51)) << radians;
      EXPECT_LE(abs(Wide(got.cos) - cos(rest)), Wide(0x1p-51)) << radians;
    }
  }
}

TEST(RadiansTest, F32AnglesHaveSinesThatRoundAsTheTrueOnes) {
  std::mt19937 random(11);
  int differ = 0;
  for (int i = 0; i < 500; ++i) {
    const float angle =
        std::ldexp(static_cast<float>(random() >> 8), -static_cast<int>(random() % 40));
    const float want = sin(Remainder(angle)).convert_to<float>();
    if (static_cast<float>(SinCosOfRadians(angle).sin) != want) ++differ;
  }
  EXPECT_EQ(differ, 0);
}

TEST(RadiansTest, TinyAnglesKeepTheirDigits) {
  EXPECT_EQ(SinCosOfRadians(1e-300).sin, 1e-300);
  EXPECT_EQ(SinCosOfRadians(-0x1p-28).sin, -0x1p-28);
  EXPECT_EQ(SinCosOfRadians(0.0).cos, 1.0);
}

TEST(RadiansTest, InfiniteAnglesHaveNoSine) {
  EXPECT_TRUE(std::isnan(SinCosOfRadians(INFINITY).sin));
  EXPECT_TRUE(std::isnan(SinCosOfRadians(NAN).cos));
}

}  // namespace
}  // namespace phasor::parity
