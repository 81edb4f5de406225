// SPDX-License-Identifier: Apache-2.0
// Tests that a changed file is detected, also if only a link to it changed.
#include "server/security/file_stamp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::security {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(FileStampTest, ChangesWithContentAndWithTheLinkThatLeadsThere) {
  const testing::TempDir dir;
  dir.Write("a", "one");
  dir.Write("b", "two");
  std::filesystem::create_symlink(dir.path() + "/a", dir.path() + "/link");
  const FileStamp before = StampOf(dir.path() + "/link");
  EXPECT_EQ(StampOf(dir.path() + "/a"), before);
  std::filesystem::remove(dir.path() + "/link");
  EXPECT_EQ(StampOf(dir.path() + "/link"), FileStamp());
  std::filesystem::create_symlink(dir.path() + "/b", dir.path() + "/link");
  EXPECT_FALSE(StampOf(dir.path() + "/link") == before);
  dir.Write("a", "longer");
  EXPECT_FALSE(StampOf(dir.path() + "/a") == before);
  EXPECT_EQ(StampsOf({"", dir.path() + "/b"}).at(0), FileStamp());
}

TEST(FileStampTest, SaysWhyAFileCannotBeRead) {
  const testing::TempDir dir;
  EXPECT_THAT(ReadFile("x", dir.path() + "/none"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/none' cannot be read (No")));
  EXPECT_THAT(ReadFile("x", dir.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not a regular file")));
  dir.Write("large", std::string((1 << 20) + 1, 'x'));
  EXPECT_THAT(
      ReadFile("x", dir.path() + "/large"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is larger than 1048576 bytes")));
  dir.Write("text", "a\0b");
  EXPECT_EQ(ReadFile("x", dir.path() + "/text").value(), "a");
  dir.Write("empty", "");
  EXPECT_EQ(ReadFile("x", dir.path() + "/empty").value(), "");
}

}  // namespace
}  // namespace phasor::security
