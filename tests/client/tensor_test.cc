// SPDX-License-Identifier: Apache-2.0
// Tests narrow floats, views, arrays and the memory of results.
#include "client/tensor.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;

TEST(TensorTest, HalfWidensExactly) {
  EXPECT_EQ(ToFloat(Float16{0x3C00}), 1.0f);
  EXPECT_EQ(ToFloat(Float16{0xC000}), -2.0f);
  EXPECT_EQ(ToFloat(Float16{0x7BFF}), 65504.0f);
  EXPECT_EQ(ToFloat(Float16{0x0001}), std::ldexp(1.0f, -24));
  EXPECT_EQ(ToFloat(Float16{0x83FF}), -std::ldexp(1023.0f, -24));
  EXPECT_EQ(ToFloat(Float16{0x0400}), std::ldexp(1.0f, -14));
  EXPECT_TRUE(std::signbit(ToFloat(Float16{0x8000})));
  EXPECT_EQ(ToFloat(Float16{0x7C00}), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(ToFloat(Float16{0x7E00})));
}

TEST(TensorTest, BrainFloatIsTheUpperHalfOfAFloat) {
  EXPECT_EQ(ToFloat(BFloat16{0x3F80}), 1.0f);
  EXPECT_EQ(ToFloat(BFloat16{0xC0A0}), -5.0f);
  EXPECT_EQ(ToFloat(BFloat16{0x0001}), std::ldexp(1.0f, -133));
}

TEST(TensorTest, EightBitFloatsWidenExactly) {
  EXPECT_EQ(ToFloat(Float8E4M3{0x7E}), 448.0f);
  EXPECT_EQ(ToFloat(Float8E4M3{0x81}), -std::ldexp(1.0f, -9));
  EXPECT_TRUE(std::isnan(ToFloat(Float8E4M3{0x7F})));
  EXPECT_EQ(ToFloat(Float8E5M2{0x7B}), 57344.0f);
  EXPECT_EQ(ToFloat(Float8E5M2{0x7C}), std::numeric_limits<float>::infinity());
  std::vector<Float8E5M2> values(4);
  EXPECT_EQ(View(values, {2, 2}).desc.dtype, Dtype::kFloat8E5M2);
  EXPECT_EQ(View(values, {2, 2}).bytes, 4);
}

TEST(TensorTest, ViewsTakeTypeAndSizeFromTheContainer) {
  std::vector<double> values(6);
  const TensorView view = View(values, {2, 3});
  EXPECT_EQ(view.desc.dtype, Dtype::kFloat64);
  EXPECT_EQ(view.bytes, 48);
  EXPECT_EQ(view.data, reinterpret_cast<const std::byte*>(values.data()));
  std::array<BFloat16, 4> narrow = {};
  const MutableTensorView writable = MutableView(narrow, {2, 2}, {2, 1});
  EXPECT_EQ(writable.desc.dtype, Dtype::kBFloat16);
  EXPECT_THAT(writable.desc.strides, ElementsAre(2, 1));
}

TEST(TensorTest, RowsSplitTheFirstDimension) {
  auto array = Array<float>::Zeros({3, 2, 2});
  ASSERT_TRUE(array.ok()) << array.status();
  for (size_t i = 0; i < array->size(); ++i) array->span()[i] = static_cast<float>(i);
  EXPECT_THAT(array->row(1), ElementsAre(4, 5, 6, 7));
  EXPECT_EQ(array->view().bytes, 48);
}

TEST(TensorTest, ResultMemoryIsAligned) {
  for (int64_t size : {0, 1, 63, 64, 65, 1000}) {
    auto bytes = Bytes::Allocate(size);
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(bytes->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes->data()) % 64, 0u);
  }
}

TEST(TensorTest, MemoryOfTheLargestSizesIsAnError) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t size : {kMost, kMost - 62}) {
    EXPECT_EQ(Bytes::Allocate(size).status().code(), absl::StatusCode::kResourceExhausted) << size;
  }
}

TEST(TensorTest, ImpossibleShapesAreErrors) {
  EXPECT_EQ(Array<float>::Zeros({-1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Array<float>::Zeros({int64_t{1} << 40, int64_t{1} << 40}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TensorTest, ZeroRowsAreEmpty) {
  auto array = Array<double>::Zeros({0, 5});
  ASSERT_TRUE(array.ok());
  EXPECT_EQ(array->size(), 0u);
  EXPECT_TRUE(array->span().empty());
}

}  // namespace
}  // namespace phasor
