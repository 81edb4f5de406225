// SPDX-License-Identifier: Apache-2.0
// Moves keys that are already rotated, as a KV cache does. Measures what repeated moves cost, and
// checks that amplitudes, frequencies and storage order become those of the target spec.
// docs/cached-keys.md describes this for authors of caches.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <random>
#include <vector>

#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/tensors.h"
#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::FastestBackend;
using testing::Real;
using testing::SameBits;
using testing::Tensor;

constexpr int64_t kCachedTokens = 64, kCachedHeads = 4, kHeadDim = 128, kPairs = kHeadDim / 2;
constexpr int kLaterMoves = 8;

using TokenPositions = std::vector<int64_t>;

Spec HalfSplit() {
  Spec spec;
  spec.preset = "rope-half-split";
  return spec;
}

RopeRequest RequestOf(const Spec& spec, Dtype dtype) {
  RopeRequest request;
  request.spec = spec;
  request.positions = PositionTensor{Dtype::kInt64, {kCachedTokens}};
  request.tensors = {{dtype, {kCachedTokens, kCachedHeads, kHeadDim}, {}}};
  return request;
}

Tensor Run(const RopeRequest& request, const Tensor& x, const TokenPositions& positions,
           const TokenPositions* from) {
  auto prepared = PrepareRope(request, CompilePlan, "item");
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  prepared->positions.data = reinterpret_cast<const std::byte*>(positions.data());
  if (from != nullptr) {
    prepared->from_positions->data = reinterpret_cast<const std::byte*>(from->data());
  }
  Tensor y(x.dtype(), x.count());
  const std::byte* const in[] = {x.data()};
  std::byte* const out[] = {y.data()};
  const Job jobs[] = {MakeRotaryJob(*prepared, in, out)};
  EXPECT_TRUE(FastestBackend().Run(jobs).ok());
  return y;
}

Tensor Rotate(const Spec& spec, const Tensor& x, const TokenPositions& positions) {
  return Run(RequestOf(spec, x.dtype()), x, positions, nullptr);
}

Tensor Move(const Spec& from_spec, const TokenPositions& from, const Spec& to_spec,
            const TokenPositions& to, const Tensor& x) {
  RopeRequest request = RequestOf(to_spec, x.dtype());
  request.direction = Direction::kDelta;
  request.from_spec = from_spec;
  request.from_positions = request.positions;
  return Run(request, x, to, &from);
}

Tensor RandomKeys(Dtype dtype) {
  Tensor x(dtype, kCachedTokens * kCachedHeads * kHeadDim);
  x.Fill(20);
  return x;
}

// The positions of the tokens after each move. The first entry is where they begin.
std::vector<TokenPositions> Journey() {
  std::mt19937_64 random(1);
  std::vector<TokenPositions> stops(kLaterMoves + 1, TokenPositions(kCachedTokens));
  for (TokenPositions& stop : stops) {
    const auto begin = static_cast<int64_t>(random() % 131072);
    for (int64_t t = 0; t < kCachedTokens; ++t) stop[t] = begin + t;
  }
  return stops;
}

// The relative RMS distance of `got` from the exact result of moving every stored key by
// `distance`.
double RelativeRms(const Tensor& stored, int64_t distance, const Tensor& got) {
  double error = 0, norm = 0;
  for (int64_t j = 0; j < kPairs; ++j) {
    const Real turns = testing::GeometricTurns(Real(distance), 10000.0, Real(j) / kPairs);
    const double s = static_cast<double>(testing::TrueSinTurns(turns));
    const double c = static_cast<double>(testing::TrueCosTurns(turns));
    for (int64_t lane = j; lane < stored.count(); lane += kHeadDim) {
      const double x1 = stored[lane], x2 = stored[lane + kPairs];
      error += std::pow(got[lane] - (x1 * c - x2 * s), 2) +
               std::pow(got[lane + kPairs] - (x1 * s + x2 * c), 2);
      norm += x1 * x1 + x2 * x2;
    }
  }
  return std::sqrt(error / norm);
}

TEST(CachedKeysTest, EightMovesOfABFloat16KeyStayNearExactOnes) {
  const std::vector<TokenPositions> stops = Journey();
  const Tensor stored = Rotate(HalfSplit(), RandomKeys(Dtype::kBFloat16), stops[0]);
  Tensor moved = stored;
  double rms = 0;
  for (int i = 1; i <= kLaterMoves; ++i) {
    moved = Move(HalfSplit(), stops[i - 1], HalfSplit(), stops[i], moved);
    rms = RelativeRms(stored, stops[i][0] - stops[0][0], moved);
    std::cout << i << " moves: relative RMS " << rms << '\n';
  }
  EXPECT_LE(rms, 0.0048);
}

TEST(CachedKeysTest, KeepingTheOriginalCostsOneMoveHoweverManyThereWere) {
  const std::vector<TokenPositions> stops = Journey();
  const Tensor stored = Rotate(HalfSplit(), RandomKeys(Dtype::kBFloat16), stops[0]);
  for (int i = 1; i <= kLaterMoves; ++i) {
    const Tensor moved = Move(HalfSplit(), stops[0], HalfSplit(), stops[i], stored);
    EXPECT_LE(RelativeRms(stored, stops[i][0] - stops[0][0], moved), 0.0017) << i;
  }
}

TEST(CachedKeysTest, AmplitudeIsOnAKeyOnceHoweverOftenItMoves) {
  Spec yarn = HalfSplit();
  yarn.attention_factor = 1.1386294361119891;  // for factor 4
  const std::vector<TokenPositions> stops = Journey();
  const Tensor keys = RandomKeys(Dtype::kFloat64);
  Tensor moved = Rotate(yarn, keys, stops[0]);
  for (int i = 1; i <= kLaterMoves; ++i) moved = Move(yarn, stops[i - 1], yarn, stops[i], moved);
  const Tensor direct = Rotate(yarn, keys, stops[kLaterMoves]);
  for (int64_t i = 0; i < keys.count(); ++i) ASSERT_NEAR(moved[i], direct[i], 1e-13) << i;
}

TEST(CachedKeysTest, EqualAmplitudesChangeNoBit) {
  Spec yarn = HalfSplit();
  yarn.attention_factor = 1.1386294361119891;
  const TokenPositions places = Journey()[0];
  for (const Dtype dtype : {Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    const Tensor stored = Rotate(yarn, RandomKeys(dtype), places);
    EXPECT_TRUE(SameBits(stored, Move(yarn, places, yarn, places, stored))) << Name(dtype);
  }
}

// Crossing LongRoPE's limit, or changing an NTK or YaRN factor, changes frequencies and amplitude.
// This test changes both.
TEST(CachedKeysTest, CrossingToAnotherSpecIsHavingBeenRotatedWithIt) {
  Spec before = HalfSplit(), after = HalfSplit();
  before.attention_factor = 1.19;
  after.attention_factor = 1.31;
  after.rope_theta = 1e6;
  const std::vector<TokenPositions> stops = Journey();
  const Tensor keys = RandomKeys(Dtype::kFloat64);
  const Tensor moved = Move(before, stops[0], after, stops[1], Rotate(before, keys, stops[0]));
  const Tensor direct = Rotate(after, keys, stops[1]);
  for (int64_t i = 0; i < keys.count(); ++i) ASSERT_NEAR(moved[i], direct[i], 1e-13) << i;
}

TEST(CachedKeysTest, NewAmplitudeIsTheQuotientRoundedOnce) {
  Spec before = HalfSplit(), after = HalfSplit();
  before.attention_factor = 1.19;
  after.attention_factor = 1.31;
  const TokenPositions places = Journey()[0];
  const Tensor stored = Rotate(before, RandomKeys(Dtype::kFloat32), places);
  const Tensor moved = Move(before, places, after, places, stored);
  const auto quotient = static_cast<float>(1.31 / 1.19);
  for (int64_t i = 0; i < stored.count(); ++i) {
    ASSERT_EQ(moved[i], quotient * static_cast<float>(stored[i]));
  }
}

// The same projections in the two orders in which models store them.
TEST(CachedKeysTest, MovesFromOneStorageOrderToTheOther) {
  Spec adjacent;
  adjacent.preset = "rope-interleaved";
  const std::vector<TokenPositions> stops = Journey();
  const Tensor keys = RandomKeys(Dtype::kFloat64);
  Tensor permuted = keys;  // what a model with the other order would have computed
  for (int64_t row = 0; row < kCachedTokens * kCachedHeads; ++row) {
    for (int64_t j = 0; j < kPairs; ++j) {
      permuted.Set(row * kHeadDim + j, keys[row * kHeadDim + 2 * j]);
      permuted.Set(row * kHeadDim + j + kPairs, keys[row * kHeadDim + 2 * j + 1]);
    }
  }
  const Tensor moved =
      Move(adjacent, stops[0], HalfSplit(), stops[1], Rotate(adjacent, keys, stops[0]));
  const Tensor direct = Rotate(HalfSplit(), permuted, stops[1]);
  for (int64_t i = 0; i < keys.count(); ++i) ASSERT_NEAR(moved[i], direct[i], 1e-13) << i;
}

TEST(CachedKeysTest, MovesWhereInputAndStorageOrderDiffer) {
  Spec deepseek;
  deepseek.preset = "rope-interleaved";
  deepseek.pairing_out = Pairing::kHalfSplit;
  const std::vector<TokenPositions> stops = Journey();
  const Tensor keys = RandomKeys(Dtype::kFloat64);
  const Tensor moved =
      Move(deepseek, stops[0], deepseek, stops[1], Rotate(deepseek, keys, stops[0]));
  const Tensor direct = Rotate(deepseek, keys, stops[1]);
  for (int64_t i = 0; i < keys.count(); ++i) ASSERT_NEAR(moved[i], direct[i], 1e-13) << i;
}

}  // namespace
}  // namespace phasor
