// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/backend.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;

TEST(BackendsTest, AutoIsTheCpuHere) {
  const auto backend = MakeBackend({});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->name(), "cpu");
  EXPECT_GE((*backend)->threads(), 1);
}

TEST(BackendsTest, OneThreadStartsNone) {
  const auto backend = MakeBackend({"cpu", 1});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->threads(), 1);
}

TEST(BackendsTest, ReferenceIsScalar) {
  const auto backend = MakeBackend({"reference", 1});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->name(), "reference");
  EXPECT_EQ((*backend)->target(), "SCALAR");
}

TEST(BackendsTest, SaysWhichNamesAreKnown) {
  const auto unknown = MakeBackend({"tpu", 1});
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("accepted are"));
  EXPECT_EQ(MakeBackend({"cuda", 1}).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace phasor
