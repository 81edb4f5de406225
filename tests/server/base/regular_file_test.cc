// SPDX-License-Identifier: Apache-2.0
// Tests that files which would block an open or a read are refused. A failure may hang.
#include "server/base/regular_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr size_t kMaxBytes = 100000;

TEST(RegularFileTest, ReadsAllBytesAlsoThroughALink) {
  const testing::TempDir dir;
  const std::string bytes = std::string(kMaxBytes - 3, 'x') + std::string("a\0b", 3);
  dir.Write("text", bytes);
  std::filesystem::create_symlink(dir.path() + "/text", dir.path() + "/link");
  EXPECT_EQ(ReadRegularFile(dir.path() + "/link", kMaxBytes).value(), bytes);
  dir.Write("empty", "");
  EXPECT_EQ(ReadRegularFile(dir.path() + "/empty", kMaxBytes).value(), "");
}

TEST(RegularFileTest, RefusesWhatIsNotARegularFileWithoutWaiting) {
  const testing::TempDir dir;
  const std::string fifo = dir.path() + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, dir.path(), std::string("/dev/zero")}) {
    EXPECT_THAT(ReadRegularFile(path, kMaxBytes),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not a regular file")))
        << path;
  }
}

TEST(RegularFileTest, SaysWhyAFileCannotBeRead) {
  const testing::TempDir dir;
  EXPECT_THAT(
      ReadRegularFile(dir.path() + "/none", kMaxBytes),
      StatusIs(absl::StatusCode::kNotFound,
               "cannot be read (No such file or directory); must be readable by this user"));
  dir.Write("large", std::string(kMaxBytes + 1, 'x'));
  EXPECT_THAT(
      ReadRegularFile(dir.path() + "/large", kMaxBytes),
      StatusIs(absl::StatusCode::kInvalidArgument, "is larger than 100000 bytes; make it smaller"));
}

}  // namespace
}  // namespace phasor
