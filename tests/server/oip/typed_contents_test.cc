// SPDX-License-Identifier: Apache-2.0
// Tests that typed contents become the same bytes as raw contents.
#include "server/oip/typed_contents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/status_matchers.h"

namespace phasor::oip {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ::phasor::testing::kInvalid;

template <typename T>
std::vector<T> Values(const absl::StatusOr<std::vector<std::byte>>& bytes) {
  std::vector<T> values(bytes->size() / sizeof(T));
  std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

TEST(TypedContentsTest, EveryTypeWithNumbersKeepsThem) {
  inference::InferTensorContents contents;
  contents.add_int_contents(-7);
  contents.add_int_contents(9);
  auto bytes = BytesOf(contents, Dtype::kInt32, 2, "x");
  ASSERT_THAT(bytes, IsOk());
  EXPECT_THAT(Values<int32_t>(bytes), ElementsAre(-7, 9));

  contents.Clear();
  contents.add_int64_contents(int64_t{1} << 40);
  bytes = BytesOf(contents, Dtype::kInt64, 1, "x");
  ASSERT_THAT(bytes, IsOk());
  EXPECT_THAT(Values<int64_t>(bytes), ElementsAre(int64_t{1} << 40));

  contents.Clear();
  contents.add_fp32_contents(0.5F);
  bytes = BytesOf(contents, Dtype::kFloat32, 1, "x");
  ASSERT_THAT(bytes, IsOk());
  EXPECT_THAT(Values<float>(bytes), ElementsAre(0.5F));

  contents.Clear();
  contents.add_fp64_contents(0.1);
  bytes = BytesOf(contents, Dtype::kFloat64, 1, "x");
  ASSERT_THAT(bytes, IsOk());
  EXPECT_THAT(Values<double>(bytes), ElementsAre(0.1));
}

TEST(TypedContentsTest, HalfPrecisionHasNoNumbers) {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16}) {
    EXPECT_THAT(BytesOf({}, dtype, 0, "inputs[0]"),
                StatusIs(kInvalid, HasSubstr("inputs[0].contents: set for")));
  }
}

TEST(TypedContentsTest, RefusesTooFewTooManyAndOtherTypes) {
  inference::InferTensorContents contents;
  contents.add_int64_contents(1);
  EXPECT_THAT(BytesOf(contents, Dtype::kInt64, 2, "x"), StatusIs(kInvalid, HasSubstr("must be 2")));
  EXPECT_THAT(BytesOf(contents, Dtype::kInt64, 0, "x"), StatusIs(kInvalid, HasSubstr("must be 0")));
  EXPECT_THAT(BytesOf(contents, Dtype::kInt32, 1, "x"), StatusIs(kInvalid, HasSubstr("elsewhere")));
  contents.add_bytes_contents("x");
  EXPECT_THAT(BytesOf(contents, Dtype::kInt64, 1, "x"), StatusIs(kInvalid, HasSubstr("elsewhere")));
}

}  // namespace
}  // namespace phasor::oip
