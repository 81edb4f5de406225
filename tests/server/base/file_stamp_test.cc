// SPDX-License-Identifier: Apache-2.0
// Tests that a changed file is detected, also if only a link to it changed.
#include "server/base/file_stamp.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

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
}

TEST(FileStampTest, StaysTheSameWhenAFileIsRenamed) {
  const testing::TempDir dir;
  dir.Write("a", "one");
  const int fd = open((dir.path() + "/a").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const FileStamp before = StampOf(fd);
  close(fd);
  std::filesystem::rename(dir.path() + "/a", dir.path() + "/b");
  EXPECT_EQ(StampOf(dir.path() + "/b"), before);
  EXPECT_EQ(StampOf(-1), FileStamp());
}

}  // namespace
}  // namespace phasor
