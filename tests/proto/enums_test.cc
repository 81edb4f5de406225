// SPDX-License-Identifier: Apache-2.0
// Tests that every value of every wire enum has exactly one enumerator, and that other numbers are
// refused.
#include "proto/enums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "google/protobuf/descriptor.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename E>
class EnumTest : public ::testing::Test {};

using AllEnums = ::testing::Types<Dtype, SpecKind, FrequencyFamily, FrequencyUnit, TrigOrder,
                                  Arrangement, AxisGrouping, AxisRule, Pairing, OddDim,
                                  ParityFrequency, ParityType, Precision, Direction, RopeLayout,
                                  OutOfRange, BiasFamily, EncodeOutput, KeyCode, MoveMode>;
TYPED_TEST_SUITE(EnumTest, AllEnums);

TYPED_TEST(EnumTest, EveryWireValueHasItsOwnEnumerator) {
  using Wire = decltype(ToWire(TypeParam()));
  const auto* descriptor = google::protobuf::GetEnumDescriptor<Wire>();
  std::set<TypeParam> seen;
  for (int i = 0; i < descriptor->value_count(); ++i) {
    const auto wire = static_cast<Wire>(descriptor->value(i)->number());
    if (wire == 0) continue;
    const auto value = EnumFromWire<TypeParam>(wire, "x");
    ASSERT_THAT(value, IsOk()) << descriptor->value(i)->name();
    EXPECT_EQ(ToWire(*value), wire);
    EXPECT_TRUE(seen.insert(*value).second) << descriptor->value(i)->name();
  }
  EXPECT_EQ(static_cast<int>(ToWire(static_cast<TypeParam>(seen.size()))), 0);
}

TYPED_TEST(EnumTest, RejectsNumbersThatAreNotDefined) {
  using Wire = decltype(ToWire(TypeParam()));
  for (const int number : {-1, 99, INT32_MAX, INT32_MIN}) {
    EXPECT_THAT(OptionalEnumFromWire<TypeParam>(static_cast<Wire>(number), "item.x"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("item.x: unknown value")));
  }
}

TYPED_TEST(EnumTest, UnspecifiedIsNothingOrAnErrorWhereRequired) {
  using Wire = decltype(ToWire(TypeParam()));
  const auto optional = OptionalEnumFromWire<TypeParam>(static_cast<Wire>(0), "x");
  ASSERT_THAT(optional, IsOk());
  EXPECT_FALSE(optional->has_value());
  EXPECT_THAT(EnumFromWire<TypeParam>(static_cast<Wire>(0), "item.x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("item.x: not set")));
}

TEST(EnumErrorTest, NamesWhatIsAccepted) {
  EXPECT_THAT(EnumFromWire<Pairing>(static_cast<v1::Pairing>(7), "spec.pairing"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("PAIRING_HALF_SPLIT"), HasSubstr("PAIRING_INTERLEAVED"))));
}

}  // namespace
}  // namespace phasor
