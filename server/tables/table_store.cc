// SPDX-License-Identifier: Apache-2.0
// Loads, finds, uploads and deletes tables.
#include "server/tables/table_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/base/digest.h"
#include "server/base/log.h"

namespace phasor::tables {
namespace {

absl::Status CheckChecksum(const std::string& sha256) {
  const bool valid = sha256.size() == 64 && std::all_of(sha256.begin(), sha256.end(), [](char c) {
                       return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                     });
  if (valid) return absl::OkStatus();
  return Invalid("table.sha256: not a hash; must be 64 hexadecimal digits in lower case");
}

absl::Status CheckTensor(const TensorDesc& tensor) {
  if (!IsComputeDtype(tensor.dtype)) {
    return Invalid("table.tensor.dtype: ", Name(tensor.dtype),
                   "; must be FLOAT64, FLOAT32, FLOAT16 or BFLOAT16");
  }
  if (tensor.shape.size() != 2 || !tensor.strides.empty()) {
    return Invalid(
        "table.tensor.shape: not dense or not two dimensions; must be [positions, width] or "
        "[buckets, heads]");
  }
  for (size_t i = 0; i < 2; ++i) {
    if (tensor.shape[i] > 0) continue;
    return Invalid("table.tensor.shape[", i, "]: ", tensor.shape[i], "; must be at least 1");
  }
  return absl::OkStatus();
}

absl::Status NotFound(std::string_view name, std::string_view path) {
  return absl::NotFoundError(
      StrCat(path, ": no table '", name,
             "' on this server; use one of ListTables, or upload it (to each server, unless all "
             "have one --tables-dir)"));
}

}  // namespace

absl::Status UploadPlaces::Take(const std::string& uploader) {
  std::lock_guard lock(mutex_);
  if (taken_ >= kAll) {
    return absl::UnavailableError(StrCat("server: ", kAll, " uploads at a time; try again later"));
  }
  int& of_one = uploaders_[uploader];
  if (of_one >= kOfOne) {
    return absl::UnavailableError(
        StrCat("server: ", kOfOne, " uploads of one caller at a time; finish one of them"));
  }
  ++of_one;
  ++taken_;
  return absl::OkStatus();
}

void UploadPlaces::GiveBack(const std::string& uploader) {
  std::lock_guard lock(mutex_);
  --taken_;
  if (--uploaders_[uploader] == 0) uploaders_.erase(uploader);
}

TableUpload::TableUpload(Table table, TableBlock block, std::shared_ptr<UploadPlaces> places,
                         std::string uploader)
    : table_(std::move(table)),
      block_(std::make_shared<TableBlock>(std::move(block))),
      places_(std::move(places)),
      uploader_(std::move(uploader)) {}

TableUpload::~TableUpload() { places_->GiveBack(uploader_); }

absl::Status TableUpload::Append(absl::Span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size > block_->size() - received_) {
    return Invalid("raw: more bytes than the shape says; must be ", block_->size());
  }
  if (size == 0) return absl::OkStatus();
  PHASOR_RETURN_IF_ERROR(block_->Take(size));
  std::memcpy(block_->data() + received_, bytes.data(), bytes.size());
  received_ += size;
  return absl::OkStatus();
}

TableStore::TableStore(const TableStoreOptions& options)
    : options_(options), budget_(std::make_shared<Budget>(options.max_tables_bytes)) {}

absl::StatusOr<std::unique_ptr<TableStore>> TableStore::Open(const TableStoreOptions& options) {
  std::unique_ptr<TableStore> store(new TableStore(options));
  if (options.directory.empty()) return store;
  PHASOR_ASSIGN_OR_RETURN(const Problems problems, store->Scan());
  if (!problems.empty()) return problems.begin()->second;
  if (options.rescan_interval > absl::ZeroDuration()) {
    store->rescanner_ = std::thread([store = store.get()] { store->RescanUntilStopped(); });
  }
  return store;
}

TableStore::~TableStore() {
  if (!rescanner_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_.notify_one();
  }
  rescanner_.join();
}

void TableStore::RescanUntilStopped() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, absl::ToChronoNanoseconds(options_.rescan_interval),
                         [this] { return stopping_; })) {
    lock.unlock();
    Rescan();
    lock.lock();
  }
}

void TableStore::Rescan() {
  absl::StatusOr<Problems> scanned = Scan();
  Problems problems =
      scanned.ok() ? *std::move(scanned) : Problems{{options_.directory, scanned.status()}};
  for (const auto& [file, status] : problems) {
    if (const auto found = logged_.find(file); found != logged_.end() && found->second == status)
      continue;
    Log(LogLevel::kWarn, "table file refused", {{"error", std::string(status.message())}});
  }
  logged_ = std::move(problems);
}

// Loads files that are new or changed, and forgets those that are gone.
absl::StatusOr<TableStore::Problems> TableStore::Scan() const {
  std::lock_guard scanning(scan_mutex_);
  std::map<std::string, SeenFile> before;
  {
    std::lock_guard lock(mutex_);
    before = files_;
  }
  PHASOR_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListTableFiles(options_.directory));
  Problems problems;
  for (const std::string& file : files) {
    before.erase(file);
    if (absl::Status status = LoadFile(file); !status.ok()) problems[file] = std::move(status);
  }
  std::lock_guard lock(mutex_);
  for (const auto& [gone, seen] : before) {
    // An upload may have written it again meanwhile.
    if (Seen(gone).stamp == seen.stamp) Forget(gone);
  }
  return problems;
}

// Reads a file, unless it has not changed since it was read.
absl::Status TableStore::LoadFile(const std::string& file) const {
  const std::string path = StrCat(options_.directory, "/", file);
  SeenFile seen;
  {
    std::lock_guard lock(mutex_);
    seen = Seen(file);
  }
  const FileStamp stamp = StampOf(path);
  if (stamp == FileStamp()) return absl::OkStatus();
  if (stamp == seen.stamp) return seen.status;
  if (options_.step_hook != nullptr) PHASOR_RETURN_IF_ERROR(options_.step_hook("read"));
  auto read = ReadTableFile(options_.directory, file, budget_);
  std::lock_guard lock(mutex_);
  // An upload or a deletion by this server came first. It is what the caller of Find expects.
  if (Seen(file).stamp != seen.stamp) return absl::OkStatus();
  if (read.ok()) return TakeOver(file, *std::move(read));
  // Another server replaced or removed it while it was read: the next scan sees what is there then.
  if (StampOf(path) != stamp) return absl::OkStatus();
  if (!absl::IsInvalidArgument(read.status())) return read.status();
  // The operator's fault and not the caller's.
  files_[file] = {stamp, absl::FailedPreconditionError(read.status().message())};
  return files_[file].status;
}

absl::Status TableStore::TakeOver(const std::string& file, TableFile read) const {
  for (const auto& table : read.tables) {
    const auto found = tables_.find(table->name);
    if (found == tables_.end() || found->second.file == file) continue;
    return absl::FailedPreconditionError(StrCat(file, ": defines table '", table->name,
                                                "' as does ", found->second.file,
                                                "; must be one of the two"));
  }
  Forget(file);
  for (auto& table : read.tables) {
    const std::string name = table->name;
    tables_[name] = Entry{std::move(table), file};
  }
  files_[file] = {read.stamp, absl::OkStatus()};
  return absl::OkStatus();
}

void TableStore::Forget(const std::string& file) const {
  std::erase_if(tables_, [&](const auto& entry) { return entry.second.file == file; });
  files_.erase(file);
}

TableStore::SeenFile TableStore::Seen(const std::string& file) const {
  const auto found = files_.find(file);
  return found == files_.end() ? SeenFile() : found->second;
}

std::shared_ptr<const Table> TableStore::FindLoaded(std::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto found = tables_.find(name);
  return found == tables_.end() ? nullptr : found->second.table;
}

absl::StatusOr<std::shared_ptr<const Table>> TableStore::Find(std::string_view name,
                                                              std::string_view path) const {
  if (auto table = FindLoaded(name); table != nullptr) return table;
  // A name that nobody has costs one look at the directory, and waits for no scan.
  if (!HasUpload(name)) return NotFound(name, path);
  {
    std::lock_guard scanning(scan_mutex_);
    PHASOR_RETURN_IF_ERROR(LoadFile(UploadFileName(std::string(name))));
  }
  if (auto table = FindLoaded(name); table != nullptr) return table;
  return NotFound(name, path);
}

bool TableStore::HasUpload(std::string_view name) const {
  if (options_.directory.empty() || !IsTableName(name)) return false;
  const std::string file = UploadFileName(std::string(name));
  return StampOf(StrCat(options_.directory, "/", file)) != FileStamp();
}

absl::StatusOr<std::shared_ptr<const Table>> LoadedTables::Find(std::string_view name,
                                                                std::string_view path) const {
  if (store_ == nullptr) return NotFound(name, path);
  if (auto table = store_->FindLoaded(name); table != nullptr) return table;
  if (store_->HasUpload(name)) lacks_a_table_ = true;
  return NotFound(name, path);
}

int64_t TableStore::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(tables_.size());
}

std::vector<std::shared_ptr<const Table>> TableStore::List(std::string_view after,
                                                           int64_t limit) const {
  std::vector<std::shared_ptr<const Table>> tables;
  std::lock_guard lock(mutex_);
  for (auto it = tables_.upper_bound(after); it != tables_.end() && limit > 0; ++it, --limit) {
    tables.push_back(it->second.table);
  }
  return tables;
}

absl::Status TableStore::CheckDirectory() const {
  if (!options_.directory.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "table: this server keeps no tables; must be started with --tables-dir");
}

absl::StatusOr<std::unique_ptr<TableUpload>> TableStore::Begin(const std::string& name,
                                                               const TensorDesc& tensor,
                                                               const std::string& sha256,
                                                               const std::string& uploader) {
  PHASOR_RETURN_IF_ERROR(CheckDirectory());
  PHASOR_RETURN_IF_ERROR(CheckTableName(name, "table.name"));
  PHASOR_RETURN_IF_ERROR(CheckTensor(tensor));
  PHASOR_RETURN_IF_ERROR(CheckChecksum(sha256));
  PHASOR_ASSIGN_OR_RETURN(const int64_t bytes, DenseBytes(tensor, "table.tensor"));
  if (bytes > options_.max_table_bytes) {
    return absl::ResourceExhaustedError(StrCat("table.tensor: ", bytes, " bytes; must be at most ",
                                               options_.max_table_bytes, " (--max-table-bytes)"));
  }
  PHASOR_RETURN_IF_ERROR(CheckReplaceable(name));
  PHASOR_ASSIGN_OR_RETURN(TableBlock block, TableBlock::Allocate(budget_, bytes));
  PHASOR_RETURN_IF_ERROR(places_->Take(uploader));
  Table table{name, tensor.dtype, tensor.shape[0], tensor.shape[1], sha256, {}};
  return std::unique_ptr<TableUpload>(
      new TableUpload(std::move(table), std::move(block), places_, uploader));
}

absl::Status TableStore::CheckReplaceable(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = tables_.find(name);
  if (found == tables_.end()) return absl::OkStatus();
  const Entry& entry = found->second;
  if (IsUploadFile(entry.file)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      StrCat("table.name: '", name, "' comes from ", entry.file, "; must be another name"));
}

absl::StatusOr<std::shared_ptr<const Table>> TableStore::Commit(
    std::unique_ptr<TableUpload> upload) {
  const int64_t bytes = upload->block_->size();
  if (upload->received_ != bytes) {
    return Invalid("raw: ", upload->received_, " bytes; must be the ", bytes, " of the shape");
  }
  Table& table = upload->table_;
  const std::string sha256 = DigestOf(upload->block_->data(), static_cast<size_t>(bytes));
  if (sha256 != table.sha256) {
    return absl::DataLossError(StrCat("table.sha256: the bytes received have ", sha256,
                                      "; must be the ", table.sha256, " that was announced"));
  }
  table.data = {upload->block_, upload->block_->data()};
  const std::string file = UploadFileName(table.name);

  std::lock_guard writing(write_mutex_);
  PHASOR_RETURN_IF_ERROR(CheckReplaceable(table.name));
  PHASOR_ASSIGN_OR_RETURN(const FileDescriptor directory, OpenDirectory(options_.directory));
  PHASOR_ASSIGN_OR_RETURN(const TemporaryFile temporary,
                          WriteTemporaryFile(options_.directory, table, options_.step_hook));
  PHASOR_RETURN_IF_ERROR(
      RenameIntoPlace(options_.directory, temporary.name, file, options_.step_hook));
  const auto stored = std::make_shared<const Table>(std::move(table));
  {
    std::lock_guard lock(mutex_);
    tables_[stored->name] = Entry{stored, file};
    files_[file] = {temporary.stamp, absl::OkStatus()};
  }
  PHASOR_RETURN_IF_ERROR(SyncDirectory(directory, options_.directory, options_.step_hook));
  return stored;
}

absl::Status TableStore::Delete(const std::string& name) {
  PHASOR_RETURN_IF_ERROR(CheckTableName(name, "name"));
  PHASOR_RETURN_IF_ERROR(Find(name, "name").status());  // loads what another server has uploaded
  std::lock_guard writing(write_mutex_);
  Entry entry;
  {
    std::lock_guard lock(mutex_);
    const auto found = tables_.find(name);
    if (found == tables_.end()) return NotFound(name, "name");
    entry = found->second;
  }
  if (!IsUploadFile(entry.file)) {
    return absl::FailedPreconditionError(StrCat("name: '", name, "' comes from ", entry.file,
                                                ", which was not uploaded; must be removed there"));
  }
  PHASOR_ASSIGN_OR_RETURN(const FileDescriptor directory, OpenDirectory(options_.directory));
  PHASOR_RETURN_IF_ERROR(RemoveFile(options_.directory, entry.file));
  {
    std::lock_guard lock(mutex_);
    Forget(entry.file);
  }
  return SyncDirectory(directory, options_.directory, options_.step_hook);
}

}  // namespace phasor::tables
