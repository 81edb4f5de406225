// SPDX-License-Identifier: Apache-2.0
// Sizes of element types, and which of them are compute dtypes.
#include "kernels/base/dtype.h"

#include <gtest/gtest.h>

namespace phasor {
namespace {

constexpr Dtype kAll[] = {Dtype::kFloat64,    Dtype::kFloat32,    Dtype::kFloat16, Dtype::kBFloat16,
                          Dtype::kFloat8E4M3, Dtype::kFloat8E5M2, Dtype::kInt32,   Dtype::kInt64};

TEST(DtypeTest, SizesFollowFromTheBitsInTheName) {
  for (const Dtype dtype : kAll) {
    const std::string_view name = Name(dtype);
    const std::string_view digits = name.substr(name.find_first_of("0123456789"));
    EXPECT_EQ(SizeOf(dtype) * 8, std::stoi(std::string(digits))) << name;
  }
}

TEST(DtypeTest, ComputesInFloatsOfSixteenBitsAndMore) {
  for (const Dtype dtype : kAll) {
    const bool is_float = Name(dtype).find("FLOAT") != std::string_view::npos;
    EXPECT_EQ(IsComputeDtype(dtype), is_float && SizeOf(dtype) >= 2) << Name(dtype);
  }
}

}  // namespace
}  // namespace phasor
