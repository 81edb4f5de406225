// SPDX-License-Identifier: Apache-2.0
// Tests table files: names, formats, what is refused, and what a failed write leaves.
#include "server/tables/table_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "kernels/base/sha256.h"
#include "kernels/tensor/npy.h"
#include "kernels/tensor/safetensors.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tables.h"
#include "tests/support/temp_dir.h"

namespace phasor::tables {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::phasor::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr auto kUnusable = absl::StatusCode::kFailedPrecondition;
constexpr auto kMalformed = absl::StatusCode::kInvalidArgument;

using Tables = std::vector<std::shared_ptr<const Table>>;

absl::StatusOr<Tables> Read(const TempDir& dir, const std::string& file, int64_t budget = 1 << 20) {
  absl::StatusOr<TableFile> read =
      ReadTableFile(dir.path(), file, std::make_shared<Budget>(budget));
  return read.ok() ? absl::StatusOr<Tables>(read->tables) : read.status();
}

std::string Npy(std::vector<int64_t> shape, const std::string& data,
                Dtype dtype = Dtype::kFloat32) {
  return FormatNpyHeader({dtype, std::move(shape), {}}) + data;
}

std::string Safetensors(const std::string& json, const std::string& data) {
  return std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') + json + data;
}

TEST(TableFilesTest, NpyFilesAreNamedAfterTheFileInLowerCase) {
  const TempDir dir;
  dir.Write("T5-Small.npy", Npy({1, 1, 2, 3}, "aaaabbbbccccddddeeeeffff"));
  const auto tables = Read(dir, "T5-Small.npy");
  ASSERT_THAT(tables, IsOk());
  ASSERT_EQ(tables->size(), 1u);
  const Table& table = *(*tables)[0];
  EXPECT_EQ(table.name, "t5-small");
  EXPECT_EQ(table.rows, 2);
  EXPECT_EQ(table.columns, 3);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(table.data.get()), 24),
            "aaaabbbbccccddddeeeeffff");
  EXPECT_EQ(table.sha256, Sha256Hex("aaaabbbbccccddddeeeeffff"));
}

TEST(TableFilesTest, SeveralTensorsAreNamedFileDotTensor) {
  const TempDir dir;
  const std::string json = R"({"wpe.Weight":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                           R"("rel":{"dtype":"F16","shape":[2,1],"data_offsets":[8,12]}})";
  dir.Write("gpt.safetensors", Safetensors(json, "abcdefghijkl"));
  const auto tables = Read(dir, "gpt.safetensors");
  ASSERT_THAT(tables, IsOk());
  ASSERT_EQ(tables->size(), 2u);
  EXPECT_EQ((*tables)[0]->name, "gpt.wpe.weight");
  EXPECT_EQ((*tables)[1]->name, "gpt.rel");
  EXPECT_EQ((*tables)[1]->sha256, Sha256Hex("ijkl"));
}

TEST(TableFilesTest, FilesThatHoldNoTableAreRefusedByName) {
  const TempDir dir;
  const struct {
    const char* file;
    std::string bytes;
    const char* message;
  } cases[] = {
      {"flat.npy", Npy({6}, std::string(24, 'x')), "must be [positions, width]"},
      {"cube.npy", Npy({2, 1, 3}, std::string(24, 'x')), "must be [positions, width]"},
      {"none.npy", Npy({0, 3}, ""), "must be [positions, width]"},
      {"ints.npy", Npy({2, 3}, std::string(24, 'x'), Dtype::kInt32), "is INT32"},
      {"long.npy", Npy({2, 3}, std::string(25, 'x')), "bytes after the data"},
      {"short.npy", Npy({2, 3}, std::string(23, 'x')), "must be the shape's 24"},
      {"empty.npy", "", "is no .npy file"},
      {"bad name.npy", Npy({2, 3}, std::string(24, 'x')), "is no name of a table"},
      {"text.safetensors", "hello world, hello", "header of"},
      {"twice.safetensors",
       Safetensors(R"({"A":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                   R"("a":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}})",
                   "12345678"),
       "defines table 'twice.a' twice"},
      {"u2.npy", Npy({2, 3}, std::string(12, 'x'), Dtype::kBFloat16), ".safetensors"},
  };
  for (const auto& c : cases) {
    dir.Write(c.file, c.bytes);
    EXPECT_THAT(Read(dir, c.file), StatusIs(kMalformed, HasSubstr(c.message))) << c.file;
    EXPECT_THAT(Read(dir, c.file), StatusIs(kMalformed, HasSubstr(c.file)));
  }
  EXPECT_THAT(Read(dir, "missing.npy"), StatusIs(kUnusable, HasSubstr("cannot be opened")));
}

// To open a FIFO that nobody writes to waits for ever, by default.
TEST(TableFilesTest, AFifoIsRefusedWithoutWaiting) {
  const TempDir dir;
  ASSERT_EQ(mkfifo((dir.path() + "/pipe.npy").c_str(), 0600), 0);
  EXPECT_THAT(Read(dir, "pipe.npy"), StatusIs(kUnusable, HasSubstr("pipe.npy: is no file")));
}

TEST(TableFilesTest, ATableLargerThanTheBudgetIsNotRead) {
  const TempDir dir;
  dir.Write("a.npy", Npy({2, 3}, std::string(24, 'x')));
  EXPECT_THAT(Read(dir, "a.npy", 23),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
}

TEST(TableFilesTest, ListingSkipsHiddenAndOtherFilesAndRemovesAbandonedUploads) {
  const TempDir dir;
  for (const char* file : {"b.npy", "a.safetensors", "README.md", ".hidden.npy", ".t.upload-a1b2c3",
                           ".t.upload-young"}) {
    dir.Write(file, "x");
  }
  testing::MakeOld(dir.path() + "/.t.upload-a1b2c3");
  const auto files = ListTableFiles(dir.path());
  ASSERT_THAT(files, IsOk());
  EXPECT_THAT(*files, ElementsAre("a.safetensors", "b.npy"));
  EXPECT_THAT(dir.Files(),
              ElementsAre(".hidden.npy", ".t.upload-young", "README.md", "a.safetensors", "b.npy"));
  EXPECT_THAT(ListTableFiles(dir.path() + "/none"),
              StatusIs(kUnusable, HasSubstr("cannot be read")));
}

TEST(TableFilesTest, WhatIsWrittenIsReadBack) {
  const TempDir dir;
  const auto table =
      testing::MakeTable("t", Dtype::kFloat64, 3, 2, std::vector<double>{1, 2, 3, 4, 5, 6});
  const auto temporary = WriteTemporaryFile(dir.path(), *table, nullptr);
  ASSERT_THAT(temporary, IsOk());
  EXPECT_THAT(RenameIntoPlace(dir.path(), temporary->name, UploadFileName("t"), nullptr), IsOk());
  const auto opened = OpenDirectory(dir.path());
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT(SyncDirectory(*opened, dir.path(), nullptr), IsOk());
  EXPECT_THAT(dir.Files(), ElementsAre("t.uploaded.safetensors"));
  EXPECT_EQ(StampOf(dir.path() + "/t.uploaded.safetensors"), temporary->stamp);
  const auto read = Read(dir, "t.uploaded.safetensors");
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ((*read)[0]->sha256, table->sha256);
  EXPECT_EQ((*read)[0]->rows, 3);
}

// Writes beyond RLIMIT_FSIZE fail like those on a full disk.
TEST(TableFilesTest, AFullDiskIsResourceExhaustedAndNamesNoPathOfTheServer) {
  const TempDir dir;
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto table =
      testing::MakeTable("t", Dtype::kFloat32, 100, 10, std::vector<double>(1000, 1.0));
  const absl::Status status = WriteTemporaryFile(dir.path(), *table, nullptr).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("tables: cannot write (File too large)")));
  EXPECT_EQ(status.message().find(dir.path()), absl::string_view::npos);
  EXPECT_THAT(dir.Files(), ::testing::IsEmpty());
}

TEST(TableFilesTest, AFailedWriteLeavesNothingBehind) {
  const TempDir dir;
  const auto table = testing::MakeTable("t", Dtype::kFloat64, 1, 2, std::vector<double>{1, 2});
  for (const char* failing : {"create", "write", "sync"}) {
    const StepHook hook = [&](const std::string& step) {
      return step == failing ? absl::InternalError("disk") : absl::OkStatus();
    };
    EXPECT_FALSE(WriteTemporaryFile(dir.path(), *table, hook).ok()) << failing;
    EXPECT_TRUE(dir.Files().empty()) << failing;
  }
  const auto temporary = WriteTemporaryFile(dir.path(), *table, nullptr);
  ASSERT_THAT(temporary, IsOk());
  EXPECT_FALSE(RenameIntoPlace(dir.path(), temporary->name, "none/t.safetensors", nullptr).ok());
  EXPECT_TRUE(dir.Files().empty());
}

}  // namespace
}  // namespace phasor::tables
