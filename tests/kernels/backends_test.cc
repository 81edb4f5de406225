// SPDX-License-Identifier: Apache-2.0
// Which backend each name makes, on hosts with and without a device.
#include "kernels/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phasor {
namespace {

using ::testing::HasSubstr;

// With or without the toolkit and with or without a device, "auto" always finds a backend.
TEST(BackendsTest, AutoIsCudaOnlyWhereADeviceAnswers) {
  const auto backend = MakeBackend({});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->name(), MakeBackend({"cuda", 1}).ok() ? "cuda" : "cpu");
  EXPECT_GE((*backend)->threads(), 1);
}

TEST(BackendsTest, CudaWithoutADeviceSaysSo) {
  const auto backend = MakeBackend({"cuda", 1});
  if (backend.ok()) GTEST_SKIP() << "this host has a device";
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(backend.status().message()), HasSubstr("CUDA"));
}

TEST(BackendsTest, NamedDevicesMustBeThereForAutoToo) {
  for (const char* const name : {"auto", "cuda"}) {
    const auto backend = MakeBackend({.name = name, .threads = 1, .devices = {1000}});
    ASSERT_FALSE(backend.ok()) << name;
    EXPECT_THAT(std::string(backend.status().message()),
                ::testing::AnyOf(HasSubstr("CUDA"), HasSubstr("devices: 1000 is none of")));
    if (std::string(name) == "auto") {
      EXPECT_THAT(std::string(backend.status().message()), ::testing::StartsWith("devices: "));
    }
  }
  EXPECT_TRUE(MakeBackend({.name = "cpu", .threads = 1, .devices = {1000}}).ok());
}

TEST(BackendsTest, TheCpuIsTheCpu) {
  const auto backend = MakeBackend({"cpu", 2});
  ASSERT_TRUE(backend.ok());
  EXPECT_EQ((*backend)->name(), "cpu");
  EXPECT_EQ((*backend)->threads(), 2);
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
}

}  // namespace
}  // namespace phasor
