// SPDX-License-Identifier: Apache-2.0
// TableStore: learned tables by name. A directory holds them, and the store keeps them in memory.
// Uploads are written to the directory. Several servers may share it. Does not use gRPC.
#ifndef PHASOR_SERVER_TABLES_TABLE_STORE_H_
#define PHASOR_SERVER_TABLES_TABLE_STORE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/request/request.h"
#include "kernels/tensor/table.h"
#include "server/tables/table_files.h"
#include "server/tables/table_memory.h"

namespace phasor::tables {

// Where tables are, and limits on their size.
struct TableStoreOptions {
  std::string directory;  // empty: no tables, and no uploads
  int64_t max_table_bytes = int64_t{256} << 20;
  int64_t max_tables_bytes = int64_t{1} << 30;  // of all tables, with uploads in progress
  StepHook step_hook = nullptr;                 // for tests
  // How often to look for what other servers have written; 0: see Find.
  absl::Duration rescan_interval = absl::ZeroDuration();
};

// Counts the uploads in progress, also of each uploader. Threads: any.
class UploadPlaces {
 public:
  // Most uploads at a time, of all together and of one uploader.
  static constexpr int kAll = 8;
  static constexpr int kOfOne = 4;

  // UNAVAILABLE: no place is free for this uploader.
  absl::Status Take(const std::string& uploader);
  void GiveBack(const std::string& uploader);

 private:
  std::mutex mutex_;
  std::map<std::string, int> uploaders_ ABSL_GUARDED_BY(mutex_);
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

// An upload in progress. Owns its bytes and its place. Threads: one at a time.
class TableUpload {
 public:
  ~TableUpload();
  TableUpload(const TableUpload&) = delete;
  TableUpload& operator=(const TableUpload&) = delete;

  // Adds bytes. INVALID_ARGUMENT: more bytes than the shape needs. RESOURCE_EXHAUSTED: no room.
  absl::Status Append(absl::Span<const std::byte> bytes);

 private:
  friend class TableStore;
  TableUpload(Table table, TableBlock block, std::shared_ptr<UploadPlaces> places,
              std::string uploader);

  Table table_;  // without data
  std::shared_ptr<TableBlock> block_;
  int64_t received_ = 0;
  const std::shared_ptr<UploadPlaces> places_;
  const std::string uploader_;
};

// The tables of a server. Owns them, and a thread that looks at the directory again; a table in use
// outlives its deletion.
//
// A file in the directory is always whole, because it is renamed into place. So servers need no
// lock: the last rename of a name wins. Files are compared by their stamps, because a network file
// system tells nobody what others write. Threads: any.
class TableStore final : public TableSource {
 public:
  // Loads all files of the directory. FAILED_PRECONDITION: the directory cannot be read, a file in
  // it is malformed, or two files define the same name. RESOURCE_EXHAUSTED: more than
  // max_tables_bytes.
  static absl::StatusOr<std::unique_ptr<TableStore>> Open(const TableStoreOptions& options);

  ~TableStore() override;

  // If no table has that name, looks once whether another server has uploaded it, and blocks while
  // it is read. For threads that may wait; see LoadedTables for others.
  absl::StatusOr<std::shared_ptr<const Table>> Find(std::string_view name,
                                                    std::string_view path) const override;
  // nullptr: no table in memory has that name.
  std::shared_ptr<const Table> FindLoaded(std::string_view name) const;
  // Whether there is an upload of that name, which Find would read unless it is loaded.
  bool HasUpload(std::string_view name) const;
  // Takes over what has changed in the directory. What cannot be read is logged once and left as it
  // was. Blocks.
  void Rescan();
  // At most `limit` tables in the order of their names, beginning after the name `after`.
  std::vector<std::shared_ptr<const Table>> List(std::string_view after, int64_t limit) const;

  // Begins an upload of `uploader`, which is any name of a caller. FAILED_PRECONDITION: there is no
  // directory. INVALID_ARGUMENT: name, dtype, shape or checksum. RESOURCE_EXHAUSTED: too large.
  // UNAVAILABLE: too many uploads at the moment.
  absl::StatusOr<std::unique_ptr<TableUpload>> Begin(const std::string& name,
                                                     const TensorDesc& tensor,
                                                     const std::string& sha256,
                                                     const std::string& uploader = "");
  // Blocks until the table is on disk, then uses it instead of an earlier upload of the name.
  // INVALID_ARGUMENT: bytes are missing. DATA_LOSS: the checksum is wrong. ALREADY_EXISTS: the name
  // belongs to another file. RESOURCE_EXHAUSTED: the disk is full. INTERNAL: the system could not
  // write.
  absl::StatusOr<std::shared_ptr<const Table>> Commit(std::unique_ptr<TableUpload> upload);
  // Blocks until the file is removed. NOT_FOUND: no such table. FAILED_PRECONDITION: the file was
  // not uploaded.
  absl::Status Delete(const std::string& name);

  const std::string& directory() const { return options_.directory; }
  absl::Duration rescan_interval() const { return options_.rescan_interval; }
  int64_t count() const;
  // Bytes of all tables, including deleted ones that are still in use.
  int64_t taken_bytes() const { return budget_->taken_bytes.load(); }

 private:
  struct Entry {
    std::shared_ptr<const Table> table;
    std::string file;
  };
  // A file as it was when its tables were loaded, or when it was found to be malformed.
  struct SeenFile {
    FileStamp stamp;
    absl::Status status;
  };
  using Problems = std::map<std::string, absl::Status>;  // by file

  explicit TableStore(const TableStoreOptions& options);
  absl::StatusOr<Problems> Scan() const;
  absl::Status LoadFile(const std::string& file) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(scan_mutex_);
  absl::Status TakeOver(const std::string& file, TableFile read) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const std::string& file) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SeenFile Seen(const std::string& file) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RescanUntilStopped();
  absl::Status CheckDirectory() const;
  absl::Status CheckReplaceable(const std::string& name) const;

  const TableStoreOptions options_;
  const std::shared_ptr<Budget> budget_;
  const std::shared_ptr<UploadPlaces> places_ = std::make_shared<UploadPlaces>();
  std::mutex write_mutex_;         // held while files change; locked before mutex_
  mutable std::mutex scan_mutex_;  // held while files are read; locked before mutex_
  mutable std::mutex mutex_;
  // What is known, which Find may extend: the tables, and the files.
  mutable std::map<std::string, Entry, std::less<>> tables_ ABSL_GUARDED_BY(mutex_);
  mutable std::map<std::string, SeenFile> files_ ABSL_GUARDED_BY(mutex_);

  Problems logged_;  // used by Rescan, which one thread calls
  std::condition_variable stop_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread rescanner_;  // may be none
};

// The tables of a store that are in memory, for one call on a thread that must not wait for a file.
// Threads: one at a time.
class LoadedTables final : public TableSource {
 public:
  // `store` must outlive it; nullptr: there are no tables.
  explicit LoadedTables(const TableStore* store) : store_(store) {}

  absl::StatusOr<std::shared_ptr<const Table>> Find(std::string_view name,
                                                    std::string_view path) const override;
  // Whether a table was not found because its file must be read first: ask the store, on a thread
  // that may wait.
  bool lacks_a_table() const { return lacks_a_table_; }

 private:
  const TableStore* const store_;
  mutable bool lacks_a_table_ = false;
};

}  // namespace phasor::tables

#endif  // PHASOR_SERVER_TABLES_TABLE_STORE_H_
