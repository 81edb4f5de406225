// SPDX-License-Identifier: Apache-2.0
// Tests files of credentials: their stamps, and why one cannot be read.
#include "server/security/credential_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::security {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(CredentialFileTest, AMissingPathHasTheStampOfAMissingFile) {
  const testing::TempDir dir;
  dir.Write("b", "two");
  const std::vector<FileStamp> stamps = StampsOf({"", dir.path() + "/b"});
  EXPECT_EQ(stamps.at(0), FileStamp());
  EXPECT_EQ(stamps.at(1), StampOf(dir.path() + "/b"));
}

TEST(CredentialFileTest, SaysWhyAFileCannotBeRead) {
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
