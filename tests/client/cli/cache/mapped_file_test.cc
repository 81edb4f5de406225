// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/mapped_file.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

TEST(MappedFileTest, BytesStayWhileACopyIsLeft) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/keys.bin";
  std::ofstream(path, std::ios::binary) << "0123456789";
  MappedFile kept;
  {
    const auto file = MappedFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    kept = *file;
  }
  std::filesystem::remove(path);
  EXPECT_EQ(kept.text(), "0123456789");
  EXPECT_EQ(kept.bytes().size(), 10u);
}

TEST(MappedFileTest, WhatIsNoFileWithBytesIsRefused) {
  const testing::TempDir dir;
  std::ofstream(dir.path() + "/empty");
  EXPECT_THAT(MappedFile::Open(dir.path() + "/none").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none: cannot be opened; must be")));
  EXPECT_THAT(MappedFile::Open(dir.path() + "/empty").status(),
              StatusIs(testing::kInvalid, HasSubstr("empty: is no file, or empty; must be")));
  EXPECT_THAT(MappedFile::Open(dir.path()).status(),
              StatusIs(testing::kInvalid, HasSubstr("is no file")));
}

}  // namespace
}  // namespace phasor::cli
