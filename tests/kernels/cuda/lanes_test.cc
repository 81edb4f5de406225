// SPDX-License-Identifier: Apache-2.0
// Lanes in words hold the elements of memory in their order, and round as the scalar conversions.
#include "kernels/cuda/lanes.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace phasor::cuda {
namespace {

template <typename Element, int kCount>
void ExpectRoundTrip() {
  constexpr int kBytes = kCount * static_cast<int>(Element::kBytes);
  using T = typename Element::Math;
  alignas(16) std::byte memory[kBytes], packed[kBytes], want[kBytes];
  std::mt19937 random(1);
  T values[kCount];
  for (int round = 0; round < 1000; ++round) {
    for (int i = 0; i < kCount; ++i) {
      values[i] = static_cast<T>(std::uniform_real_distribution<double>(-70000, 70000)(random));
      Element::Store(values[i], want + i * Element::kBytes);
    }
    StoreWords(PackLanes<Element>(values), packed);
    ASSERT_EQ(std::memcmp(packed, want, kBytes), 0);
    std::memcpy(memory, want, kBytes);
    const auto words = LoadWords<kBytes>(memory);
    for (int i = 0; i < kCount; ++i) {
      ASSERT_EQ(LaneOf<Element>(words, i), Element::Load(memory + i * Element::kBytes)) << i;
    }
  }
}

TEST(LanesTest, AreTheElementsOfMemory) {
  ExpectRoundTrip<scalar::F64, 1>();
  ExpectRoundTrip<scalar::F64, 2>();
  ExpectRoundTrip<scalar::F32, 1>();
  ExpectRoundTrip<scalar::F32, 4>();
  ExpectRoundTrip<scalar::F16, 1>();
  ExpectRoundTrip<scalar::F16, 8>();
  ExpectRoundTrip<scalar::BF16, 1>();
  ExpectRoundTrip<scalar::BF16, 8>();
  ExpectRoundTrip<Float8Element<Float8::kE4M3>, 16>();
  ExpectRoundTrip<Float8Element<Float8::kE5M2>, 16>();
}

TEST(LanesTest, EveryByteIsItsFloat8) {
  for (const Float8 type : {Float8::kE4M3, Float8::kE5M2}) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const float want = FloatFromFloat8(static_cast<uint8_t>(byte), type);
      for (int i = 0; i < 4; ++i) {
        const float got = WidenFloat8(byte << (8 * i), i, type);
        EXPECT_TRUE(got != got ? want != want : BitsFromFloat(got) == BitsFromFloat(want)) << byte;
      }
    }
  }
}

TEST(LanesTest, Float8LanesAreScaledAndRoundedOneByOne) {
  for (const Float8 type : {Float8::kE4M3, Float8::kE5M2}) {
    float values[8] = {0, -1, 0.3f, 1000, -70000, 1e-4f, 3.25f, -0.0f};
    const auto words = PackFloat8Lanes(values, 0.37f, type);
    std::array<std::byte, 8> bytes;
    std::memcpy(bytes.data(), &words, sizeof words);
    for (size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_EQ(bytes[i], scalar::ScaledFloat8(values[i], 0.37f, type)) << i;
    }
    float one[1] = {values[3]};
    EXPECT_EQ(static_cast<std::byte>(PackFloat8Lanes(one, 0.37f, type).word[0]), bytes[3]);
  }
}

}  // namespace
}  // namespace phasor::cuda
