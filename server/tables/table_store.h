// SPDX-License-Identifier: Apache-2.0
// Learned tables by name, in memory; loaded from a directory, and written there when uploaded.
// Knows nothing of gRPC.
#ifndef PHASOR_SERVER_TABLES_TABLE_STORE_H_
#define PHASOR_SERVER_TABLES_TABLE_STORE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/request/request.h"
#include "kernels/tensor/table.h"
#include "server/tables/table_files.h"
#include "server/tables/table_memory.h"

namespace phasor::tables {

struct TableStoreOptions {
  std::string directory;  // empty: no tables, and none can be uploaded
  int64_t max_table_bytes = int64_t{256} << 20;
  int64_t max_tables_bytes = int64_t{1} << 30;  // of all tables, uploads in progress included
  StepHook step_hook = nullptr;                 // for tests
};

// The bytes of one upload while they arrive. Threads: one at a time. Owns them.
class TableUpload {
 public:
  ~TableUpload();
  TableUpload(const TableUpload&) = delete;
  TableUpload& operator=(const TableUpload&) = delete;

  // INVALID_ARGUMENT: more bytes than the shape says. RESOURCE_EXHAUSTED: no room for them.
  absl::Status Append(absl::Span<const std::byte> bytes);

 private:
  friend class TableStore;
  TableUpload(Table table, TableBlock block, std::shared_ptr<std::atomic<int>> uploads);

  Table table_;  // without data
  std::shared_ptr<TableBlock> block_;
  int64_t received_ = 0;
  const std::shared_ptr<std::atomic<int>> uploads_;
};

// Threads: any. Owns the tables; those in use outlive their deletion.
class TableStore final : public TableSource {
 public:
  // Uploads at a time.
  static constexpr int kMaxUploads = 8;

  // Loads every file of the directory. FAILED_PRECONDITION: it cannot be read, a file in it is
  // malformed, or two define one name. RESOURCE_EXHAUSTED: more than max_tables_bytes.
  static absl::StatusOr<std::unique_ptr<TableStore>> Open(const TableStoreOptions& options);

  absl::StatusOr<std::shared_ptr<const Table>> Find(std::string_view name,
                                                    std::string_view path) const override;
  // At most `limit` tables, by name, those after `after`.
  std::vector<std::shared_ptr<const Table>> List(std::string_view after, int64_t limit) const;

  // FAILED_PRECONDITION: no directory. INVALID_ARGUMENT: name, dtype, shape or checksum.
  // RESOURCE_EXHAUSTED: too large. UNAVAILABLE: too many uploads at the moment.
  absl::StatusOr<std::unique_ptr<TableUpload>> Begin(const std::string& name,
                                                     const TensorDesc& tensor,
                                                     const std::string& sha256);
  // Blocks until the table is on disk, then serves it in place of one that was uploaded before.
  // INVALID_ARGUMENT: bytes are missing. DATA_LOSS: another checksum. ALREADY_EXISTS: the name
  // belongs to another file. INTERNAL: the system refused to write.
  absl::StatusOr<std::shared_ptr<const Table>> Commit(std::unique_ptr<TableUpload> upload);
  // Blocks until the file is gone. NOT_FOUND. FAILED_PRECONDITION: the file is no
  // upload's.
  absl::Status Delete(const std::string& name);

  int64_t count() const;
  // Bytes of all tables, also of those deleted but still in use.
  int64_t taken_bytes() const { return budget_->taken_bytes.load(); }

 private:
  struct Entry {
    std::shared_ptr<const Table> table;
    std::string file;
  };

  explicit TableStore(const TableStoreOptions& options);
  absl::Status Load();
  absl::Status CheckDirectory() const;
  absl::Status CheckReplaceable(const std::string& name) const;

  const TableStoreOptions options_;
  const std::shared_ptr<Budget> budget_;
  const std::shared_ptr<std::atomic<int>> uploads_;
  std::mutex write_mutex_;  // held while files change, taken before mutex_
  mutable std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> tables_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace phasor::tables

#endif  // PHASOR_SERVER_TABLES_TABLE_STORE_H_
