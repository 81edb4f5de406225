// SPDX-License-Identifier: Apache-2.0
// Tests the store: loading, uploads and their errors, crashes, concurrency, and deletion of a table
// in use.
#include "server/tables/table_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "kernels/base/sha256.h"
#include "kernels/tensor/npy.h"
#include "kernels/tensor/safetensors.h"
#include "tests/support/eventually.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::tables {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kExhausted;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::phasor::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::SizeIs;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;

const TensorDesc kShape{Dtype::kFloat32, {4, 2}, {}};  // 32 bytes
const std::string kOld(32, 'o'), kNew(32, 'n');

absl::Span<const std::byte> BytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::unique_ptr<TableStore> Open(const TempDir& dir, StepHook hook = nullptr) {
  auto store = TableStore::Open({dir.path(), 1000, 2000, std::move(hook)});
  EXPECT_THAT(store, IsOk());
  return store.ok() ? *std::move(store) : nullptr;
}

absl::Status Put(TableStore& store, const std::string& name, const std::string& bytes) {
  auto upload = store.Begin(name, kShape, Sha256Hex(bytes));
  if (!upload.ok()) return upload.status();
  if (absl::Status status = (*upload)->Append(BytesOf(bytes)); !status.ok()) return status;
  return store.Commit(*std::move(upload)).status();
}

std::string ContentOf(const TableStore& store, const std::string& name) {
  const auto table = store.Find(name, "table");
  if (!table.ok()) return std::string(table.status().message());
  return {reinterpret_cast<const char*>((*table)->data.get()),
          static_cast<size_t>((*table)->bytes())};
}

TEST(TableStoreTest, AnUploadIsFoundAndSurvivesARestart) {
  const TempDir dir;
  const auto store = Open(dir);
  EXPECT_THAT(Put(*store, "t", kOld), IsOk());
  EXPECT_EQ(ContentOf(*store, "t"), kOld);
  EXPECT_THAT(Put(*store, "t", kNew), IsOk());
  EXPECT_EQ(ContentOf(*store, "t"), kNew);
  EXPECT_EQ(ContentOf(*Open(dir), "t"), kNew);
  EXPECT_EQ(dir.Files().size(), 1u);
}

TEST(TableStoreTest, BytesMayComeInAnyPieces) {
  const TempDir dir;
  const auto store = Open(dir);
  auto upload = store->Begin("t", kShape, Sha256Hex(kOld));
  ASSERT_THAT(upload, IsOk());
  for (size_t begin = 0; begin < 32; begin += 5) {
    EXPECT_THAT((*upload)->Append(BytesOf(std::string_view(kOld).substr(begin, 5))), IsOk());
  }
  EXPECT_THAT(store->Commit(*std::move(upload)), IsOk());
}

TEST(TableStoreTest, WrongChecksumIsDataLossAndKeepsTheOldTable) {
  const TempDir dir;
  const auto store = Open(dir);
  ASSERT_THAT(Put(*store, "t", kOld), IsOk());
  auto upload = store->Begin("t", kShape, Sha256Hex("something else"));
  ASSERT_THAT(upload, IsOk());
  ASSERT_THAT((*upload)->Append(BytesOf(kNew)), IsOk());
  EXPECT_THAT(store->Commit(*std::move(upload)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("table.sha256: the bytes received")));
  EXPECT_EQ(ContentOf(*store, "t"), kOld);
  EXPECT_EQ(ContentOf(*Open(dir), "t"), kOld);
}

TEST(TableStoreTest, TooFewAndTooManyBytesAreRefused) {
  const TempDir dir;
  const auto store = Open(dir);
  auto upload = store->Begin("t", kShape, Sha256Hex(kOld));
  ASSERT_THAT(upload, IsOk());
  EXPECT_THAT((*upload)->Append(BytesOf(kOld + "x")), StatusIs(kInvalid, HasSubstr("more bytes")));
  EXPECT_THAT((*upload)->Append(BytesOf(kOld.substr(1))), IsOk());
  EXPECT_THAT(store->Commit(*std::move(upload)),
              StatusIs(kInvalid, HasSubstr("31 bytes; must be the 32")));
  EXPECT_TRUE(dir.Files().empty());
}

TEST(TableStoreTest, EachWrongAnnouncementIsNamed) {
  const TempDir dir;
  const auto store = Open(dir);
  const std::string sha(64, '0');
  const auto begin = [&](const std::string& name, const TensorDesc& tensor,
                         const std::string& checksum) {
    return store->Begin(name, tensor, checksum).status();
  };
  for (const char* name : {"..", "../t", "a/b", "/t", ".t", "", "T"}) {
    EXPECT_THAT(begin(name, kShape, sha), StatusIs(kInvalid, HasSubstr("table.name: "))) << name;
  }
  for (const std::string& checksum : {std::string(), sha + "0", std::string(64, 'G')}) {
    EXPECT_THAT(begin("t", kShape, checksum), StatusIs(kInvalid, HasSubstr("table.sha256")));
  }
  EXPECT_THAT(begin("t", {Dtype::kInt64, {4, 2}, {}}, sha),
              StatusIs(kInvalid, HasSubstr("table.tensor.dtype: INT64")));
  EXPECT_THAT(begin("t", {Dtype::kFloat32, {8}, {}}, sha),
              StatusIs(kInvalid, HasSubstr("table.tensor.shape")));
  EXPECT_THAT(begin("t", {Dtype::kFloat32, {4, 2}, {2, 1}}, sha),
              StatusIs(kInvalid, HasSubstr("dense")));
  EXPECT_THAT(begin("t", {Dtype::kFloat32, {0, 2}, {}}, sha),
              StatusIs(kInvalid, HasSubstr("table.tensor.shape[0]: 0")));
  EXPECT_THAT(begin("t", {Dtype::kFloat32, {int64_t{1} << 40, int64_t{1} << 40}, {}}, sha),
              StatusIs(kInvalid, HasSubstr("2^62")));
  EXPECT_THAT(begin("t", {Dtype::kFloat32, {251, 1}, {}}, sha),
              StatusIs(kExhausted, HasSubstr("1004 bytes; must be at most 1000")));
}

TEST(TableStoreTest, WithoutADirectoryUploadsAreRefusedAndNothingIsFound) {
  const auto store = TableStore::Open({});
  ASSERT_THAT(store, IsOk());
  EXPECT_THAT((*store)->Begin("t", kShape, Sha256Hex(kOld)),
              StatusIs(kPrecondition, HasSubstr("--tables-dir")));
  EXPECT_THAT(
      (*store)->Find("t", "item.table"),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("item.table: no table 't' on this server")));
  EXPECT_TRUE((*store)->List("", 10).empty());
}

TEST(TableStoreTest, AllTablesTogetherStayWithinTheirMemory) {
  const TempDir dir;
  auto store = TableStore::Open({dir.path(), 1000, 70});
  ASSERT_THAT(store, IsOk());
  ASSERT_THAT(Put(**store, "a", kOld), IsOk());
  ASSERT_THAT(Put(**store, "b", kOld), IsOk());
  EXPECT_THAT(Put(**store, "c", kOld), StatusIs(kExhausted, HasSubstr("--max-tables-bytes")));
  EXPECT_EQ((*store)->taken_bytes(), 64);
  EXPECT_THAT((*store)->Delete("a"), IsOk());
  EXPECT_THAT(Put(**store, "c", kOld), IsOk());
  EXPECT_THAT(TableStore::Open({dir.path(), 1000, 63}), StatusIs(kExhausted, HasSubstr("")));
}

TEST(TableStoreTest, UploadsAtATimeAreLimited) {
  const TempDir dir;
  const auto store = Open(dir);
  std::vector<std::unique_ptr<TableUpload>> uploads;
  for (const char* const uploader : {"a", "a", "a", "a", "b", "b", "b", "b"}) {
    auto upload = store->Begin("t", kShape, Sha256Hex(kOld), uploader);
    ASSERT_THAT(upload, IsOk());
    uploads.push_back(*std::move(upload));
  }
  EXPECT_THAT(store->Begin("t", kShape, Sha256Hex(kOld), "c"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("8 uploads at a time")));
  uploads.pop_back();
  EXPECT_THAT(store->Begin("t", kShape, Sha256Hex(kOld), "c"), IsOk());
}

TEST(TableStoreTest, OneUploaderCannotTakeAllPlaces) {
  const TempDir dir;
  const auto store = Open(dir);
  std::vector<std::unique_ptr<TableUpload>> uploads;
  for (int i = 0; i < 4; ++i) {
    auto upload = store->Begin("t", kShape, Sha256Hex(kOld), "a");
    ASSERT_THAT(upload, IsOk());
    uploads.push_back(*std::move(upload));
  }
  EXPECT_THAT(store->Begin("t", kShape, Sha256Hex(kOld), "a"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("4 uploads of one caller")));
  EXPECT_THAT(store->Begin("t", kShape, Sha256Hex(kOld), "b"), IsOk());
  uploads.pop_back();
  EXPECT_THAT(store->Begin("t", kShape, Sha256Hex(kOld), "a"), IsOk());
}

// A process that dies before a step of writing leaves the old table, or from the rename on the new
// one, and a start an hour later cleans up.
TEST(TableStoreTest, ACrashAtAnyStepLeavesAWholeTable) {
  for (const std::string crash : {"create", "write", "sync", "rename", "sync directory"}) {
    const TempDir dir;
    ASSERT_THAT(Put(*Open(dir), "t", kOld), IsOk());
    const auto upload_and_die = [&] {
      const auto store = Open(dir, [&](const std::string& step) {
        if (step == crash) _exit(7);
        return absl::OkStatus();
      });
      Put(*store, "t", kNew).IgnoreError();
      _exit(1);
    };
    EXPECT_EXIT(upload_and_die(), ::testing::ExitedWithCode(7), "") << crash;
    EXPECT_EQ(ContentOf(*Open(dir), "t"), crash == "sync directory" ? kNew : kOld) << crash;
    for (const std::string& file : dir.Files()) testing::MakeOld(dir.path() + "/" + file);
    EXPECT_THAT(Open(dir), ::testing::NotNull());
    EXPECT_EQ(dir.Files().size(), 1u) << crash;
  }
}

TEST(TableStoreTest, ConcurrentUploadsOfOneNameLeaveOneOfThemWhole) {
  const TempDir dir;
  const auto store = Open(dir);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        EXPECT_THAT(Put(*store, "t", std::string(32, static_cast<char>('a' + t))), IsOk());
        const std::string seen = ContentOf(*store, "t");
        EXPECT_EQ(seen, std::string(32, seen[0]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ContentOf(*Open(dir), "t"), ContentOf(*store, "t"));
  EXPECT_EQ(dir.Files().size(), 1u);
  EXPECT_EQ(store->taken_bytes(), 32);
}

// Two servers on one directory.

TEST(SharedTableStoreTest, AnUploadToOneIsFoundByTheOtherAtOnce) {
  const TempDir dir;
  const auto one = Open(dir), other = Open(dir);
  EXPECT_FALSE(other->Find("t", "table").ok());
  ASSERT_THAT(Put(*one, "t", kOld), IsOk());
  EXPECT_EQ(ContentOf(*other, "t"), kOld);
  EXPECT_THAT(Put(*other, "u", kNew), IsOk());
  EXPECT_THAT(one->Delete("u"), IsOk());
  EXPECT_FALSE(Open(dir)->Find("u", "table").ok());
}

TEST(SharedTableStoreTest, ARescanTakesOverWhatWasReplacedDeletedAndAdded) {
  const TempDir dir;
  const auto one = Open(dir), other = Open(dir);
  for (const char* name : {"replaced", "deleted", "same"}) {
    ASSERT_THAT(Put(*one, name, kOld), IsOk());
    ASSERT_EQ(ContentOf(*other, name), kOld);
  }
  const auto same = *other->Find("same", "table");
  ASSERT_THAT(Put(*one, "replaced", kNew), IsOk());
  ASSERT_THAT(one->Delete("deleted"), IsOk());
  dir.Write("added.npy", FormatNpyHeader({Dtype::kFloat32, {4, 2}, {}}) + kNew);
  other->Rescan();
  EXPECT_EQ(ContentOf(*other, "replaced"), kNew);
  EXPECT_EQ(ContentOf(*other, "added"), kNew);
  EXPECT_FALSE(other->Find("deleted", "table").ok());
  EXPECT_EQ(*other->Find("same", "table"), same) << "read again without need";
  EXPECT_EQ(other->count(), 3);
  EXPECT_EQ(other->taken_bytes(), 3 * 32);
}

// The directory decides, not who wrote last into its own memory.
TEST(SharedTableStoreTest, TheLastOfTwoUploadsOfOneNameWinsOnBoth) {
  const TempDir dir;
  const auto one = Open(dir), other = Open(dir);
  ASSERT_THAT(Put(*one, "t", kOld), IsOk());
  ASSERT_THAT(Put(*other, "t", kNew), IsOk());
  one->Rescan();
  other->Rescan();
  EXPECT_EQ(ContentOf(*one, "t"), kNew);
  EXPECT_EQ(ContentOf(*other, "t"), kNew);
}

TEST(SharedTableStoreTest, AnUploadInProgressSurvivesTheStartAndTheScanOfAnotherServer) {
  const TempDir dir;
  const auto one = Open(dir, [&](const std::string& step) {
    if (step == "rename") Open(dir)->Rescan();
    return absl::OkStatus();
  });
  EXPECT_THAT(Put(*one, "t", kOld), IsOk());
  EXPECT_EQ(ContentOf(*one, "t"), kOld);
}

TEST(SharedTableStoreTest, WhoMustNotWaitLearnsThatAFileMustBeRead) {
  const TempDir dir;
  const auto one = Open(dir), other = Open(dir);
  ASSERT_THAT(Put(*one, "t", kOld), IsOk());
  const LoadedTables before(other.get());
  EXPECT_THAT(before.Find("u", "table"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no table")));
  EXPECT_FALSE(before.lacks_a_table()) << "nobody has uploaded it";
  EXPECT_THAT(before.Find("t", "table"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no table")));
  EXPECT_TRUE(before.lacks_a_table());
  EXPECT_EQ(other->FindLoaded("t"), nullptr) << "nothing was read";
  EXPECT_EQ(ContentOf(*other, "t"), kOld);
  const LoadedTables after(other.get());
  EXPECT_THAT(after.Find("t", "table"), IsOk());
  EXPECT_FALSE(after.lacks_a_table());
  EXPECT_THAT(LoadedTables(nullptr).Find("t", "table"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no table")));
}

TEST(SharedTableStoreTest, AFileThatCannotBeReadChangesNothing) {
  const TempDir dir;
  const auto store = Open(dir);
  ASSERT_THAT(Put(*store, "t", kOld), IsOk());
  dir.Write("t.npy", FormatNpyHeader({Dtype::kFloat32, {4, 2}, {}}) + kNew);  // same name
  dir.Write("half.npy", FormatNpyHeader({Dtype::kFloat32, {4, 2}, {}}) + kNew.substr(1));
  store->Rescan();
  EXPECT_EQ(ContentOf(*store, "t"), kOld);
  EXPECT_EQ(store->count(), 1);
  dir.Write("half.npy", FormatNpyHeader({Dtype::kFloat32, {4, 2}, {}}) + kNew);  // now whole
  store->Rescan();
  EXPECT_EQ(ContentOf(*store, "half"), kNew);
}

TEST(SharedTableStoreTest, AMalformedFileIsReadOnceUntilItIsReplaced) {
  const TempDir dir;
  int reads = 0;
  const auto other = Open(dir);
  const auto store = Open(dir, [&](const std::string& step) {
    reads += step == "read" ? 1 : 0;
    return absl::OkStatus();
  });
  dir.Write(UploadFileName("t"), "cut off");
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(store->Find("t", "table"), StatusIs(kPrecondition, HasSubstr("t.uploaded")));
  }
  store->Rescan();
  EXPECT_EQ(reads, 1);
  EXPECT_THAT(Put(*other, "t", kNew), IsOk());
  EXPECT_EQ(ContentOf(*store, "t"), kNew);
}

// As a conversion that writes in place leaves it.
TEST(SharedTableStoreTest, TheTablesOfAFileOutliveItsMalformedReplacement) {
  const TempDir dir;
  const std::string tensor = R"(":{"dtype":"F32","shape":[1,1],"data_offsets":[)";
  const std::string json = R"({"A)" + tensor + R"(0,4]},"a)" + tensor + "4,8]}}";
  dir.Write("t.safetensors", FormatSafetensorsHeader("t", kShape) + kOld);
  const auto store = Open(dir);
  dir.Write("t.safetensors", std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') +
                                 json + kNew.substr(0, 8));
  store->Rescan();
  EXPECT_EQ(ContentOf(*store, "t"), kOld);
  EXPECT_EQ(store->count(), 1);
}

TEST(SharedTableStoreTest, TheStoreLooksAgainByItself) {
  const TempDir dir;
  auto store = TableStore::Open({.directory = dir.path(),
                                 .max_table_bytes = 1000,
                                 .max_tables_bytes = 2000,
                                 .rescan_interval = absl::Milliseconds(5)});
  ASSERT_THAT(store, IsOk());
  const auto other = Open(dir);
  ASSERT_THAT(Put(*other, "t", kOld), IsOk());
  EXPECT_TRUE(testing::Eventually([&] { return (*store)->count() == 1; }));
}

TEST(TableStoreTest, ADeletedTableLivesWhileItIsInUse) {
  const TempDir dir;
  const auto store = Open(dir);
  ASSERT_THAT(Put(*store, "t", kOld), IsOk());
  auto held = store->Find("t", "table");
  ASSERT_THAT(held, IsOk());
  EXPECT_THAT(store->Delete("t"), IsOk());
  EXPECT_FALSE(store->Find("t", "table").ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>((*held)->data.get()), 32), kOld);
  EXPECT_EQ(store->taken_bytes(), 32);
  held = absl::UnknownError("");
  EXPECT_EQ(store->taken_bytes(), 0);
  EXPECT_TRUE(dir.Files().empty());
  EXPECT_THAT(store->Delete("t"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("name: no table 't'")));
  EXPECT_THAT(store->Delete("../t"), StatusIs(kInvalid, HasSubstr("name: ")));
}

TEST(TableStoreTest, FilesOfTheOperatorAreNeitherReplacedNorDeleted) {
  const TempDir dir;
  dir.Write("n.npy", FormatNpyHeader({Dtype::kFloat32, {4, 2}, {}}) + kOld);
  const std::string json = R"({"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}})";
  dir.Write("m.safetensors", std::string(1, static_cast<char>(json.size())) + std::string(7, '\0') +
                                 json + "abcdefgh");
  const auto store = Open(dir);
  EXPECT_THAT(Put(*store, "n", kNew),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("comes from n.npy")));
  EXPECT_THAT(Put(*store, "m.a", kNew), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("")));
  EXPECT_THAT(store->Delete("m.a"), StatusIs(kPrecondition, HasSubstr("was not uploaded")));
  EXPECT_THAT(store->Delete("n"), StatusIs(kPrecondition, HasSubstr("comes from n.npy")));
  // Not a table's name, but a file's.
  EXPECT_THAT(Put(*store, "m", kNew), IsOk());
  EXPECT_THAT(Open(dir)->List("", 9), SizeIs(4));
  EXPECT_THAT(store->Delete("m"), IsOk());
  EXPECT_THAT(Open(dir)->List("", 9), SizeIs(3));
}

TEST(TableStoreTest, TwoFilesOfOneNameStopTheStart) {
  const TempDir dir;
  const std::string file = FormatNpyHeader({Dtype::kFloat32, {4, 2}, {}}) + kOld;
  dir.Write("t.npy", file);
  dir.Write("T.npy", file);
  EXPECT_THAT(TableStore::Open({dir.path()}),
              StatusIs(kPrecondition, HasSubstr("t.npy: defines table 't' as does T.npy")));
}

TEST(TableStoreTest, ListingIsByNameAndContinuesAfterAName) {
  const TempDir dir;
  const auto store = Open(dir);
  for (const char* name : {"c", "a", "b"}) ASSERT_THAT(Put(*store, name, kOld), IsOk());
  const auto names = [&](const char* after, int64_t limit) {
    std::string all;
    for (const auto& table : store->List(after, limit)) all += table->name;
    return all;
  };
  EXPECT_EQ(names("", 10), "abc");
  EXPECT_EQ(names("", 2), "ab");
  EXPECT_EQ(names("b", 2), "c");
  EXPECT_EQ(names("aa", 1), "b");
}

}  // namespace
}  // namespace phasor::tables
