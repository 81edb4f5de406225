// SPDX-License-Identifier: Apache-2.0
// Tests the byte budget.
#include "server/base/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace phasor {
namespace {

using ::testing::HasSubstr;

TEST(AdmissionTest, RefusesWhatDoesNotFitAnyMoreAndSaysTheBytes) {
  Admission admission(100);
  const auto first = admission.Take(60);
  ASSERT_TRUE(first.ok());
  const auto second = admission.Take(41);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("60 of 100 bytes"));
  EXPECT_THAT(second.status().message(), HasSubstr("41"));
  EXPECT_TRUE(admission.Take(40).ok());
}

TEST(AdmissionTest, PermitGivesItsBytesBack) {
  Admission admission(100);
  { const auto permit = admission.Take(100); }
  EXPECT_EQ(admission.taken_bytes(), 0);
  EXPECT_TRUE(admission.Take(100).ok());
}

TEST(AdmissionTest, MoreThanTheWholeLimitIsNotWorthARetry) {
  Admission admission(100);
  EXPECT_EQ(admission.Take(101).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(AdmissionTest, NewLimitHoldsForWhatComes) {
  Admission admission(100);
  const auto held = admission.Take(80);
  admission.SetLimit(50);
  EXPECT_EQ(admission.taken_bytes(), 80);
  EXPECT_EQ(admission.Take(1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(admission.Take(51).status().code(), absl::StatusCode::kResourceExhausted);
  admission.SetLimit(200);
  EXPECT_TRUE(admission.Take(120).ok());
}

TEST(AdmissionTest, HugeCostDoesNotOverflow) {
  Admission admission(INT64_MAX);
  const auto first = admission.Take(INT64_MAX - 1);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(admission.Take(INT64_MAX).status().code(), absl::StatusCode::kUnavailable);
}

TEST(AdmissionTest, SplitPermitsGiveBackSeparately) {
  Admission admission(100);
  auto permit = std::make_unique<Permit>(*admission.Take(100));
  Permit part = permit->Split(30);
  EXPECT_EQ(part.bytes(), 30);
  EXPECT_EQ(permit->bytes(), 70);
  permit.reset();
  EXPECT_EQ(admission.taken_bytes(), 30);
  part = Permit();
  EXPECT_EQ(admission.taken_bytes(), 0);
}

TEST(AdmissionTest, SplitTakesNoMoreThanThereIs) {
  Admission admission(100);
  auto permit = admission.Take(10);
  EXPECT_EQ(permit->Split(50).bytes(), 10);
  EXPECT_EQ(permit->bytes(), 0);
}

TEST(AdmissionTest, WhatIsHeldLeavesLessRoomForOthers) {
  Admission admission(100);
  const auto taken = admission.Take(60);
  const Permit held = admission.Hold(30);
  EXPECT_EQ(admission.taken_bytes(), 90);
  const auto refused = admission.Take(11);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(refused.status().message(), HasSubstr("90 of 100 bytes"));
  EXPECT_TRUE(admission.Take(10).ok());
  EXPECT_TRUE(admission.Take(40, /*held=*/30).ok());
}

TEST(AdmissionTest, WhatIsHeldLeavesHalfOfTheLimitAndAllWhileNothingIsTaken) {
  Admission admission(100);
  const Permit held = admission.Hold(1000);
  {
    const auto taken = admission.Take(20);
    EXPECT_EQ(admission.Take(31).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(admission.Take(30).ok());
  }
  EXPECT_TRUE(admission.Take(100).ok());
  EXPECT_EQ(admission.Take(101).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(AdmissionTest, HeldBytesAreGivenBack) {
  Admission admission(100);
  { const Permit held = admission.Hold(80); }
  EXPECT_EQ(admission.taken_bytes(), 0);
  const auto taken = admission.Take(50);
  EXPECT_TRUE(admission.Take(50).ok());
}

TEST(AdmissionTest, PermitOutlivesItsAdmission) {
  auto admission = std::make_unique<Admission>(100);
  const auto permit = admission->Take(10);
  admission.reset();
  EXPECT_EQ(permit->bytes(), 10);
}

}  // namespace
}  // namespace phasor
