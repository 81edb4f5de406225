// SPDX-License-Identifier: Apache-2.0
// Positions of every kind, their limits and their errors.
#include "kernels/tensor/positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/support/status_matchers.h"
#include "tests/support/truth.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::Integer;
using testing::IsOk;
using testing::Real;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr int64_t kMinPosition = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxPosition = std::numeric_limits<int64_t>::max();
using ::phasor::testing::kInvalid;

PositionSource Make(const Positions& positions, int axes = 1) {
  auto source = MakePositionSource(positions, axes, "positions");
  EXPECT_THAT(source, IsOk());
  return *std::move(source);
}

absl::Status Error(const Positions& positions, int axes = 1) {
  return MakePositionSource(positions, axes, "positions").status();
}

std::vector<Position> Read(const PositionSource& source, int64_t first, int64_t count) {
  std::vector<Position> out(count * source.axes, Position{77, 77});
  ReadPositions(source, first, count, out.data());
  return out;
}

// Reading in two parts, cut anywhere, must give the same as reading at once.
void ExpectSplitsAgree(const PositionSource& source) {
  const std::vector<Position> all = Read(source, 0, source.count());
  for (int64_t cut = 0; cut <= source.count(); ++cut) {
    std::vector<Position> parts = Read(source, 0, cut);
    const std::vector<Position> rest = Read(source, cut, source.count() - cut);
    parts.insert(parts.end(), rest.begin(), rest.end());
    ASSERT_EQ(parts, all) << "cut at " << cut;
  }
}

template <typename T>
std::vector<std::byte> Bytes(const std::vector<T>& values, size_t misalign = 0) {
  std::vector<std::byte> bytes(values.size() * sizeof(T) + misalign);
  std::memcpy(bytes.data() + misalign, values.data(), values.size() * sizeof(T));
  return bytes;
}

TEST(PositionFromDoubleTest, IsCorrectlyRounded) {
  std::mt19937_64 random(1);
  std::vector<double> values = {0,
                                -0.0,
                                1,
                                -1,
                                0.1,
                                -0.1,
                                0x1p-12,
                                0x1p-64,
                                0x1p-65,
                                0x1.8p-64,
                                -0x1.8p-64,
                                0x1.4p-63,
                                0x1.fffffffffffffp62,
                                -0x1.fffffffffffffp62,
                                5e-324,
                                998.39};
  for (int i = 0; i < 20'000; ++i) {
    const double mantissa = 1 + std::ldexp(static_cast<double>(random() >> 12), -52);
    values.push_back(
        std::ldexp(i % 2 ? mantissa : -mantissa, static_cast<int>(random() % 150) - 87));
  }
  for (const double x : values) {
    Position position;
    ASSERT_TRUE(PositionFromDouble(x, &position)) << x;
    ASSERT_EQ(testing::ToFixed(position.whole, position.fraction), testing::RoundToFixed(Real(x)))
        << x;
  }
}

TEST(PositionFromDoubleTest, RefusesWhatIsNotANumberBelowTwoToThe63) {
  Position position;
  for (const double x : {std::nan(""), HUGE_VAL, -HUGE_VAL, 0x1p63, -0x1p63, 1e300}) {
    EXPECT_FALSE(PositionFromDouble(x, &position)) << x;
  }
}

TEST(IntegerRangeTest, ReadsStartPlusMultiplesOfStep) {
  const PositionSource source = Make(IntegerRange{5, -3, 4});
  EXPECT_EQ(source.tokens, 4);
  EXPECT_EQ(Read(source, 0, 4), (std::vector<Position>{{5, 0}, {2, 0}, {-1, 0}, {-4, 0}}));
  ExpectSplitsAgree(source);
}

TEST(IntegerRangeTest, ReachesBothEndsOfInt64) {
  const PositionSource up = Make(IntegerRange{kMaxPosition - 4, 2, 3});
  EXPECT_EQ(Read(up, 2, 1)[0], (Position{kMaxPosition, 0}));
  const PositionSource down = Make(IntegerRange{kMaxPosition, kMinPosition, 2});
  EXPECT_EQ(Read(down, 1, 1)[0], (Position{-1, 0}));
}

TEST(IntegerRangeTest, RefusesALastPositionBeyondInt64) {
  EXPECT_THAT(Error(IntegerRange{kMaxPosition - 4, 2, 4}),
              StatusIs(kInvalid, StartsWith("positions.range.integer: the last position leaves")));
  EXPECT_THAT(Error(IntegerRange{0, kMaxPosition, int64_t{1} << 40}),
              StatusIs(kInvalid, HasSubstr("leaves")));
  EXPECT_THAT(Error(IntegerRange{kMinPosition, -1, 2}), StatusIs(kInvalid, HasSubstr("leaves")));
}

TEST(IntegerRangeTest, RefusesCountsOutsideItsRange) {
  EXPECT_THAT(Error(IntegerRange{0, 1, -1}),
              StatusIs(kInvalid, StartsWith("positions.range.integer.count: -1 is out of range")));
  EXPECT_THAT(Error(IntegerRange{0, 1, (int64_t{1} << 40) + 1}),
              StatusIs(kInvalid, HasSubstr("count")));
}

TEST(IntegerRangeTest, MayBeEmpty) {
  const PositionSource source = Make(IntegerRange{7, 1, 0});
  EXPECT_EQ(source.count(), 0);
  EXPECT_TRUE(Read(source, 0, 0).empty());
}

TEST(RealRangeTest, IsEvaluatedInFixedPointAndNotAccumulated) {
  const PositionSource source = Make(RealRange{-0.3, 0.1, 1000});
  const std::vector<Position> all = Read(source, 0, 1000);
  const Integer start = testing::RoundToFixed(Real(-0.3));
  const Integer step = testing::RoundToFixed(Real(0.1));
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(testing::ToFixed(all[i].whole, all[i].fraction), start + i * step) << i;
  }
  ExpectSplitsAgree(Make(RealRange{10.5, -0.25, 9}));
}

TEST(RealRangeTest, RefusesWhatItCannotHold) {
  EXPECT_THAT(Error(RealRange{std::nan(""), 1, 1}),
              StatusIs(kInvalid, StartsWith("positions.range.real.start: nan; must be finite")));
  EXPECT_THAT(Error(RealRange{0, HUGE_VAL, 1}),
              StatusIs(kInvalid, StartsWith("positions.range.real.step")));
  EXPECT_THAT(Error(RealRange{0x1p63, 1, 1}),
              StatusIs(kInvalid, StartsWith("positions.range.real.start")));
  EXPECT_THAT(Error(RealRange{0, 0x1p62, 3}),
              StatusIs(kInvalid, HasSubstr("the last position leaves")));
  EXPECT_THAT(Error(RealRange{0, 0x1p62, 2}), IsOk());
}

TEST(RangeTest, IsForOneAxisOnly) {
  EXPECT_THAT(Error(IntegerRange{0, 1, 4}, 2),
              StatusIs(kInvalid, StartsWith("positions.range: one axis")));
}

TEST(GridTest, IsRowMajorWithTheLastAxisFastest) {
  const PositionSource source =
      Make(PositionGrid{{IntegerRange{10, 10, 2}, RealRange{0.5, 1, 3}}}, 2);
  EXPECT_EQ(source.tokens, 6);
  const uint64_t half = uint64_t{1} << 63;
  EXPECT_EQ(Read(source, 0, 6), (std::vector<Position>{{10, 0},
                                                       {0, half},
                                                       {10, 0},
                                                       {1, half},
                                                       {10, 0},
                                                       {2, half},
                                                       {20, 0},
                                                       {0, half},
                                                       {20, 0},
                                                       {1, half},
                                                       {20, 0},
                                                       {2, half}}));
  ExpectSplitsAgree(source);
}

TEST(GridTest, CarriesThroughFourAxes) {
  const IntegerRange axis{0, 1, 3};
  const PositionSource source = Make(PositionGrid{{axis, axis, IntegerRange{5, 0, 1}, axis}}, 4);
  EXPECT_EQ(source.tokens, 27);
  ExpectSplitsAgree(source);
  const std::vector<Position> last = Read(source, 26, 1);
  EXPECT_EQ(last, (std::vector<Position>{{2, 0}, {2, 0}, {5, 0}, {2, 0}}));
}

TEST(GridTest, RefusesAxesThatTheSpecDoesNotHaveAndTooManyPositions) {
  const IntegerRange axis{0, 1, 3};
  EXPECT_THAT(Error(PositionGrid{{axis, axis, axis}}, 2),
              StatusIs(kInvalid, StartsWith("positions.grid.axes: 3 axes, the spec has 2")));
  const IntegerRange large{0, 1, int64_t{1} << 40};
  EXPECT_THAT(Error(PositionGrid{{large, axis}}, 2), StatusIs(kInvalid, HasSubstr("2^40")));
  EXPECT_THAT(Error(PositionGrid{{axis, IntegerRange{0, 1, -2}}}, 2),
              StatusIs(kInvalid, StartsWith("positions.grid.axes[1].integer.count")));
}

TEST(GridTest, IsEmptyWhenAnyAxisIs) {
  const IntegerRange large{0, 1, int64_t{1} << 40};
  const PositionSource source = Make(PositionGrid{{large, large, IntegerRange{0, 1, 0}}}, 3);
  EXPECT_EQ(source.tokens, 0);
}

TEST(RaggedTest, RestartsAtEverySequence) {
  const PositionSource source = Make(RaggedPositions{{2, 0, 3, 1}, {0, 9, -1, 100}});
  EXPECT_EQ(source.tokens, 6);
  EXPECT_EQ(Read(source, 0, 6),
            (std::vector<Position>{{0, 0}, {1, 0}, {-1, 0}, {0, 0}, {1, 0}, {100, 0}}));
  ExpectSplitsAgree(source);
}

TEST(RaggedTest, StartsAtZeroWithoutOffsets) {
  const PositionSource source = Make(RaggedPositions{{2, 2}, {}});
  EXPECT_EQ(Read(source, 1, 2), (std::vector<Position>{{1, 0}, {0, 0}}));
}

TEST(RaggedTest, ReachesBothEndsOfInt64) {
  const PositionSource source = Make(RaggedPositions{{3, 1}, {kMaxPosition - 2, kMinPosition}});
  EXPECT_EQ(Read(source, 2, 2), (std::vector<Position>{{kMaxPosition, 0}, {kMinPosition, 0}}));
  EXPECT_THAT(
      Error(RaggedPositions{{4}, {kMaxPosition - 2}}),
      StatusIs(kInvalid, StartsWith("positions.ragged.lengths[0]: 4 leads the last position out")));
}

TEST(RaggedTest, RefusesListsThatDisagreeAndBadLengths) {
  EXPECT_THAT(Error(RaggedPositions{{1, 2}, {0}}),
              StatusIs(kInvalid, StartsWith("positions.ragged.offsets: 1")));
  EXPECT_THAT(Error(RaggedPositions{{1, -2}, {}}),
              StatusIs(kInvalid, StartsWith("positions.ragged.lengths[1]: -2")));
  const int64_t most = int64_t{1} << 40;
  EXPECT_THAT(Error(RaggedPositions{{most, 1}, {}}),
              StatusIs(kInvalid, StartsWith("positions.ragged.lengths[1]")));
  EXPECT_EQ(Make(RaggedPositions{}).tokens, 0);
}

TEST(PositionTensorTest, ReadsEveryDtypeAtAnyAlignment) {
  const std::vector<Position> integers = {{-3, 0}, {0, 0}, {7, 0}};
  const std::vector<Position> reals = {{-3, 0}, {0, uint64_t{1} << 62}, {7, 0}};
  const auto read = [](Dtype dtype, const std::vector<std::byte>& bytes) {
    PositionSource source = Make(PositionTensor{dtype, {3}});
    source.data = bytes.data() + 1;
    ExpectSplitsAgree(source);
    return Read(source, 0, 3);
  };
  EXPECT_EQ(read(Dtype::kInt32, Bytes<int32_t>({-3, 0, 7}, 1)), integers);
  EXPECT_EQ(read(Dtype::kInt64, Bytes<int64_t>({-3, 0, 7}, 1)), integers);
  EXPECT_EQ(read(Dtype::kFloat32, Bytes<float>({-3, 0.25f, 7}, 1)), reals);
  EXPECT_EQ(read(Dtype::kFloat64, Bytes<double>({-3, 0.25, 7}, 1)), reals);
}

TEST(PositionTensorTest, HasATrailingAxesDimensionExactlyWithSeveralAxes) {
  const PositionSource source = Make(PositionTensor{Dtype::kInt32, {2, 5, 3}}, 3);
  EXPECT_EQ(source.batch, 2);
  EXPECT_EQ(source.tokens, 5);
  EXPECT_EQ(source.count(), 10);
  EXPECT_EQ(source.data_bytes, 2 * 5 * 3 * 4);
  EXPECT_EQ(Make(PositionTensor{Dtype::kInt32, {5, 3}}, 3).batch, 1);
  EXPECT_THAT(Error(PositionTensor{Dtype::kInt32, {5}}, 3),
              StatusIs(kInvalid, StartsWith("positions.tensor.shape: 1")));
  EXPECT_THAT(Error(PositionTensor{Dtype::kInt32, {5, 2}}, 3),
              StatusIs(kInvalid, StartsWith("positions.tensor.shape[1]: 2; must be 3")));
  EXPECT_THAT(Error(PositionTensor{Dtype::kInt32, {2, 5, 1}}),
              StatusIs(kInvalid, HasSubstr("3 dimensions")));
  EXPECT_THAT(Error(PositionTensor{Dtype::kInt32, {}}),
              StatusIs(kInvalid, HasSubstr("0 dimensions")));
}

TEST(PositionTensorTest, ReadsAxesOfATokenTogether) {
  PositionSource source = Make(PositionTensor{Dtype::kInt32, {2, 2}}, 2);
  const std::vector<std::byte> bytes = Bytes<int32_t>({1, 2, 3, 4});
  source.data = bytes.data();
  EXPECT_EQ(Read(source, 1, 1), (std::vector<Position>{{3, 0}, {4, 0}}));
}

TEST(PositionTensorTest, RefusesTypesThatCannotHoldPositions) {
  EXPECT_THAT(
      Error(PositionTensor{Dtype::kBFloat16, {1}}),
      StatusIs(kInvalid, StartsWith("positions.tensor.dtype: BFLOAT16 cannot hold position 257")));
  EXPECT_THAT(Error(PositionTensor{Dtype::kFloat16, {1}}), StatusIs(kInvalid, HasSubstr("2049")));
  EXPECT_THAT(Error(PositionTensor{Dtype::kFloat8E4M3, {1}}),
              StatusIs(kInvalid, HasSubstr("FLOAT8_E4M3")));
}

TEST(PositionTensorTest, RefusesNegativeAndOverflowingShapes) {
  EXPECT_THAT(Error(PositionTensor{Dtype::kInt64, {-1}}),
              StatusIs(kInvalid, StartsWith("positions.tensor.shape[0]: -1")));
  const int64_t large = int64_t{1} << 40;
  EXPECT_THAT(Error(PositionTensor{Dtype::kInt64, {large, large}}),
              StatusIs(kInvalid, HasSubstr("2^40")));
  EXPECT_THAT(Error(PositionTensor{Dtype::kInt64, {kMaxPosition}}),
              StatusIs(kInvalid, HasSubstr("2^40")));
  EXPECT_EQ(Make(PositionTensor{Dtype::kInt64, {0, 5}}).count(), 0);
}

TEST(CheckPositionValuesTest, NamesTheFirstBadElement) {
  const auto check = [](const auto& values, Dtype dtype) {
    PositionSource source = Make(PositionTensor{dtype, {static_cast<int64_t>(values.size())}});
    const std::vector<std::byte> bytes = Bytes(values, 1);
    source.data = bytes.data() + 1;
    return CheckPositionValues(source, "item.positions");
  };
  EXPECT_THAT(check(std::vector<float>{1, -2.5f, 1e18f}, Dtype::kFloat32), IsOk());
  EXPECT_THAT(
      check(std::vector<float>{1, NAN, NAN}, Dtype::kFloat32),
      StatusIs(kInvalid, StartsWith("item.positions.tensor: element 1 is nan; must be finite")));
  EXPECT_THAT(check(std::vector<double>{1, 2, 0x1p63}, Dtype::kFloat64),
              StatusIs(kInvalid, HasSubstr("element 2")));
  EXPECT_THAT(check(std::vector<double>{-HUGE_VAL}, Dtype::kFloat64),
              StatusIs(kInvalid, HasSubstr("element 0")));
  EXPECT_THAT(check(std::vector<int64_t>{kMinPosition, kMaxPosition}, Dtype::kInt64), IsOk());
  EXPECT_THAT(CheckPositionValues(Make(IntegerRange{0, 1, 3}), "p"), IsOk());
}

// Every slice, and every slice of a slice, must read what the whole source reads there.
void ExpectSlicesReadTheWhole(const PositionSource& whole) {
  const auto tokens = whole.count();
  for (int64_t first = 0; first <= tokens; ++first) {
    for (int64_t count = 0; count <= tokens - first; ++count) {
      const PositionSource slice = SliceTokens(whole, first, count);
      EXPECT_EQ(slice.count(), count);
      EXPECT_EQ(Read(slice, 0, count), Read(whole, first, count)) << first << "+" << count;
      if (count < 2) continue;
      EXPECT_EQ(Read(SliceTokens(slice, 1, count - 1), 0, count - 1),
                Read(whole, first + 1, count - 1));
    }
  }
}

TEST(SliceTokensTest, ReadsWhatTheWholeReadsThere) {
  ExpectSlicesReadTheWhole(Make(AxisRange(IntegerRange{kMaxPosition - 6, 1, 7})));
  ExpectSlicesReadTheWhole(Make(AxisRange(RealRange{0.1, 0.7, 9})));
  ExpectSlicesReadTheWhole(Make(RaggedPositions{{2, 0, 3, 1}, {5, 9, kMinPosition, 7}}));
  ExpectSlicesReadTheWhole(
      Make(PositionGrid{{AxisRange(IntegerRange{4, 2, 2}), AxisRange(RealRange{0.5, 0.25, 3}),
                         AxisRange(IntegerRange{-1, -1, 2})}},
           3));
  const std::vector<int32_t> numbers = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
  PositionSource tensor = Make(PositionTensor{Dtype::kInt32, {3, 2, 2}}, 2);
  tensor.data = reinterpret_cast<const std::byte*>(numbers.data());
  ExpectSlicesReadTheWhole(tensor);
  EXPECT_EQ(SliceTokens(tensor, 1, 4).data_bytes, 4 * 2 * 4);
}

}  // namespace
}  // namespace phasor
