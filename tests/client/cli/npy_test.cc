// SPDX-License-Identifier: Apache-2.0
// Tests reading and writing .npy files.
#include "client/cli/npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  return names;
}

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

// A limit on the size of files stands in for a full disk.
TEST(NpyTest, AFileStaysAsItIsWhenItsReplacementCannotBeWritten) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/kept.npy";
  ASSERT_EQ(WriteFile(path, {"old"}), absl::OkStatus());
  absl::Status status;
  {
    const testing::FileSizeLimit limit(4);
    status = WriteFile(path, {"new", "er"});
  }
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("File too large")));
  EXPECT_EQ(Text(path), "old");
  EXPECT_THAT(Names(dir.path()), ElementsAre("kept.npy"));
}

// The limit kills the process in the middle of its writing.
TEST(NpyTest, AProcessThatIsKilledLeavesNothing) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/kept.npy";
  if (const int file = open(dir.path().c_str(), O_TMPFILE | O_WRONLY, 0600); file < 0) {
    GTEST_SKIP() << "the file system has no files without a name";
  } else {
    close(file);
  }
  ASSERT_EQ(WriteFile(path, {"old"}), absl::OkStatus());
  const pid_t child = fork();
  if (child == 0) {
    const testing::FileSizeLimit limit(4);
    std::signal(SIGXFSZ, SIG_DFL);
    _exit(WriteFile(path, {"new", "er"}).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(Text(path), "old");
  EXPECT_THAT(Names(dir.path()), ElementsAre("kept.npy"));
}

TEST(NpyTest, AFileKeepsItsOwnerAndAllItsNames) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/x.npy", other = dir.path() + "/other.npy";
  ASSERT_EQ(WriteFile(path, {"old"}), absl::OkStatus());
  const bool root = chown(path.c_str(), 1234, 4321) == 0;
  ASSERT_EQ(WriteFile(path, {"new"}), absl::OkStatus());
  struct stat after = {};
  ASSERT_EQ(stat(path.c_str(), &after), 0);
  EXPECT_EQ(after.st_uid, root ? 1234u : getuid());
  EXPECT_EQ(after.st_gid, root ? 4321u : getgid());
  std::filesystem::create_hard_link(path, other);
  ASSERT_EQ(WriteFile(path, {"newest"}), absl::OkStatus());
  EXPECT_EQ(Text(other), "newest");
}

TEST(NpyTest, AFileIsReplacedWithItsPermissions) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/x.npy";
  ASSERT_EQ(WriteFile(path, {"an old one"}), absl::OkStatus());
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  ASSERT_EQ(WriteFile(path, {"new"}), absl::OkStatus());
  EXPECT_EQ(Text(path), "new");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0640));
  EXPECT_THAT(Names(dir.path()), ElementsAre("x.npy"));
}

TEST(NpyTest, ALinkStaysALink) {
  const testing::TempDir dir;
  const std::string path = dir.path() + "/x.npy", link = dir.path() + "/link.npy";
  ASSERT_EQ(WriteFile(path, {"old"}), absl::OkStatus());
  std::filesystem::create_symlink("x.npy", link);
  ASSERT_EQ(WriteFile(link, {"new"}), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(Text(path), "new");
}

TEST(NpyTest, ShortFilesOnDiskAreErrors) {
  const std::string path = NpyPath("short.npy");
  std::ofstream(path, std::ios::binary) << FormatNpyHeader({Dtype::kFloat32, {2}, {}}) << "1234567";
  EXPECT_EQ(ReadNpy(path, false).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace phasor::cli
