// SPDX-License-Identifier: Apache-2.0
// Tests reading and writing .npy files.
#include "client/cli/npy.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

std::string NpyPath(const std::string& name) { return ::testing::TempDir() + "/npy_test_" + name; }

TEST(NpyTest, EveryTypeAndRankSurvivesAFile) {
  for (Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16,
                      Dtype::kInt32, Dtype::kInt64}) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{}, {5}, {0, 3}, {2, 3}, {2, 1, 2, 3}}) {
      int64_t bytes = SizeOf(dtype);
      for (int64_t extent : shape) bytes *= extent;
      std::vector<std::byte> data(static_cast<size_t>(bytes));
      for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 37);
      const std::string path = NpyPath("round_trip.npy");
      ASSERT_TRUE(WriteNpy(path, {{dtype, shape, {}}, data.data(), bytes}).ok());
      auto array = ReadNpy(path, true);
      ASSERT_TRUE(array.ok()) << array.status();
      EXPECT_EQ(array->dtype, dtype);
      EXPECT_EQ(array->shape, shape);
      const std::vector<std::byte> read(array->bytes.data(),
                                        array->bytes.data() + array->bytes.size());
      EXPECT_EQ(read, data);
    }
  }
}

TEST(NpyTest, MissingFilesAndFoldersAreErrors) {
  EXPECT_EQ(ReadNpy(NpyPath("none.npy"), false).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadNpy(::testing::TempDir(), false).ok());
  EXPECT_THAT(WriteNpy("/nonexistent/x.npy", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("No such file")));
  EXPECT_THAT(WriteNpy("/dev/full", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("No space left on device")));
}

TEST(NpyTest, ShortFilesOnDiskAreErrors) {
  const std::string path = NpyPath("short.npy");
  std::ofstream(path, std::ios::binary) << FormatNpyHeader({Dtype::kFloat32, {2}, {}}) << "1234567";
  EXPECT_EQ(ReadNpy(path, false).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace phasor::cli
