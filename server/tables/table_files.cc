// SPDX-License-Identifier: Apache-2.0
// Reads table files, and writes uploads with temporary files, syncs and renames.
#include "server/tables/table_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <set>
#include <system_error>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/tensor/npy.h"
#include "kernels/tensor/safetensors.h"
#include "kernels/tensor/tensor_desc.h"
#include "server/base/digest.h"
#include "server/base/log.h"

namespace phasor::tables {
namespace {

constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kUploaded = ".uploaded.safetensors";
constexpr std::string_view kNpy = ".npy";
constexpr std::string_view kTemporary = ".upload-";

// Longer than a write takes, and than clocks of two hosts differ.
constexpr time_t kAbandonedAfterSeconds = 3600;

std::string SystemError(int error) { return std::generic_category().message(error); }

// The caller is told what failed, and the log where.
absl::Status Failed(std::string_view what, const std::string& path) {
  const int error = errno;
  Log(LogLevel::kError, "tables-dir cannot be written",
      {{"path", path}, {"error", SystemError(error)}});
  const std::string message = StrCat("tables: cannot ", what, " (", SystemError(error),
                                     ") in --tables-dir of the server; ");
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return absl::ResourceExhaustedError(StrCat(message, "delete tables or make room"));
  }
  return absl::InternalError(StrCat(message, "ask who runs it"));
}

absl::Status Unreadable(std::string_view file, std::string_view what) {
  return absl::FailedPreconditionError(StrCat(file, ": ", what));
}

absl::Status BeforeStep(const StepHook& hook, const std::string& step) {
  return hook == nullptr ? absl::OkStatus() : hook(step);
}

// A file descriptor that closes itself. Threads: one.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  // Returns false if the system could not write all of the data.
  bool Close() { return close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

bool ReadAt(int fd, int64_t offset, int64_t bytes, void* out) {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t n = pread(fd, to, static_cast<size_t>(bytes), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    offset += n;
    bytes -= n;
  }
  return true;
}

bool WriteAll(int fd, const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = write(fd, from, static_cast<size_t>(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    from += n;
    bytes -= n;
  }
  return true;
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

void RemoveIfAbandoned(const std::string& path) {
  struct stat about;
  if (lstat(path.c_str(), &about) != 0) return;
  if (time(nullptr) - about.st_mtim.tv_sec > kAbandonedAfterSeconds) unlink(path.c_str());
}

// The tensors of a file, with their full names.
absl::StatusOr<std::vector<NamedTensor>> ReadHeader(const std::string& file,
                                                    const std::string& start, int64_t file_bytes) {
  if (file.ends_with(kNpy)) {
    PHASOR_ASSIGN_OR_RETURN(NpyHeader header, ParseNpyHeader(start, file_bytes, false, file));
    if (header.data_begin + header.data_bytes != file_bytes) {
      return InvalidAt(file, "bytes after the data; must end with it");
    }
    const std::string stem = file.substr(0, file.size() - kNpy.size());
    return std::vector<NamedTensor>{
        {LowerCase(stem), header.tensor, header.data_begin, header.data_bytes}};
  }
  PHASOR_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors,
                          ParseSafetensorsHeader(start, file_bytes, file));
  const size_t extension = IsUploadFile(file) ? kUploaded.size() : kSafetensors.size();
  const std::string stem = LowerCase(file.substr(0, file.size() - extension));
  const bool alone = tensors.size() == 1;
  for (NamedTensor& tensor : tensors) {
    tensor.name = alone ? stem : StrCat(stem, ".", LowerCase(tensor.name));
  }
  return tensors;
}

// Name and shape of a table, without its data.
absl::StatusOr<Table> DescribeTable(const std::string& file, const NamedTensor& tensor) {
  if (absl::Status status = CheckTableName(tensor.name, tensor.name); !status.ok()) {
    return InvalidAt(file, status.message());
  }
  if (!IsComputeDtype(tensor.tensor.dtype)) {
    return InvalidAt(file, "'", tensor.name, "' is ", Name(tensor.tensor.dtype),
                     "; must be FLOAT64, FLOAT32, FLOAT16 or BFLOAT16");
  }
  std::vector<int64_t> shape = tensor.tensor.shape;
  while (shape.size() > 2 && shape.front() == 1) shape.erase(shape.begin());
  if (shape.size() != 2 || tensor.data_bytes == 0) {
    return InvalidAt(file, "'", tensor.name, "' has shape ", ShapeText(tensor.tensor.shape),
                     "; must be [positions, width] or [buckets, heads]");
  }
  return Table{tensor.name, tensor.tensor.dtype, shape[0], shape[1], {}, {}};
}

absl::StatusOr<std::shared_ptr<const Table>> ReadTable(int fd, const std::string& file,
                                                       const NamedTensor& tensor,
                                                       const std::shared_ptr<Budget>& budget) {
  PHASOR_ASSIGN_OR_RETURN(Table table, DescribeTable(file, tensor));
  PHASOR_ASSIGN_OR_RETURN(TableBlock allocated, TableBlock::Allocate(budget, tensor.data_bytes));
  auto block = std::make_shared<TableBlock>(std::move(allocated));
  PHASOR_RETURN_IF_ERROR(block->Take(tensor.data_bytes));
  if (!ReadAt(fd, tensor.data_begin, tensor.data_bytes, block->data())) {
    return Unreadable(file, "cannot be read to its end; must be a whole file");
  }
  table.sha256 = DigestOf(block->data(), static_cast<size_t>(block->size()));
  table.data = {block, block->data()};
  return std::make_shared<const Table>(std::move(table));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListTableFiles(const std::string& directory) {
  DIR* const opened = opendir(directory.c_str());
  if (opened == nullptr) {
    return absl::FailedPreconditionError(StrCat("tables-dir: ", directory, " cannot be read (",
                                                SystemError(errno),
                                                "); must be a directory that the server may read"));
  }
  std::vector<std::string> files;
  while (const dirent* entry = readdir(opened)) {
    const std::string name = entry->d_name;
    if (name.front() == '.') {
      if (name.find(kTemporary) != std::string::npos) RemoveIfAbandoned(directory + "/" + name);
      continue;
    }
    if (name.ends_with(kSafetensors) || name.ends_with(kNpy)) files.push_back(name);
  }
  closedir(opened);
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<TableFile> ReadTableFile(const std::string& directory, const std::string& file,
                                        const std::shared_ptr<Budget>& budget) {
  // These flags keep open from blocking, as it would on a FIFO.
  const File opened(
      open((directory + "/" + file).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat about;
  if (opened.fd() < 0 || fstat(opened.fd(), &about) != 0) {
    return Unreadable(file, StrCat("cannot be opened (", SystemError(errno),
                                   "); must be readable by the server's user"));
  }
  if (!S_ISREG(about.st_mode)) return Unreadable(file, "is no file; remove it or replace it");
  const int64_t longest = std::max(kMaxSafetensorsHeaderBytes, kMaxNpyHeaderBytes) + 16;
  std::string start(static_cast<size_t>(std::min<int64_t>(about.st_size, longest)), '\0');
  if (!ReadAt(opened.fd(), 0, static_cast<int64_t>(start.size()), start.data())) {
    return Unreadable(file, "cannot be read; must be readable by the server's user");
  }
  PHASOR_ASSIGN_OR_RETURN(const std::vector<NamedTensor> tensors,
                          ReadHeader(file, start, about.st_size));
  TableFile read{.stamp = StampOf(opened.fd())};
  std::set<std::string> names;
  for (const NamedTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return InvalidAt(file, "defines table '", tensor.name, "' twice; must be once");
    }
    PHASOR_ASSIGN_OR_RETURN(auto table, ReadTable(opened.fd(), file, tensor, budget));
    read.tables.push_back(std::move(table));
  }
  return read;
}

std::string UploadFileName(const std::string& name) { return StrCat(name, kUploaded); }

bool IsUploadFile(std::string_view file) { return file.ends_with(kUploaded); }

absl::StatusOr<TemporaryFile> WriteTemporaryFile(const std::string& directory, const Table& table,
                                                 const StepHook& hook) {
  PHASOR_RETURN_IF_ERROR(BeforeStep(hook, "create"));
  std::string path = StrCat(directory, "/.", table.name, kTemporary, "XXXXXX");
  File file(mkostemp(path.data(), O_CLOEXEC));
  if (file.fd() < 0) return Failed("create a file", directory);
  const TensorDesc tensor{table.dtype, {table.rows, table.columns}, {}};
  const std::string header = FormatSafetensorsHeader("table", tensor);
  FileStamp stamp;
  const auto write = [&]() -> absl::Status {
    PHASOR_RETURN_IF_ERROR(BeforeStep(hook, "write"));
    if (!WriteAll(file.fd(), header.data(), static_cast<int64_t>(header.size())) ||
        !WriteAll(file.fd(), table.data.get(), table.bytes())) {
      return Failed("write", path);
    }
    PHASOR_RETURN_IF_ERROR(BeforeStep(hook, "sync"));
    if (fchmod(file.fd(), 0644) != 0 || fsync(file.fd()) != 0) return Failed("sync", path);
    stamp = StampOf(file.fd());
    if (!file.Close()) return Failed("sync", path);
    return absl::OkStatus();
  };
  if (absl::Status status = write(); !status.ok()) {
    unlink(path.c_str());
    return status;
  }
  return TemporaryFile{path.substr(directory.size() + 1), stamp};
}

absl::Status RenameIntoPlace(const std::string& directory, const std::string& temporary,
                             const std::string& file, const StepHook& hook) {
  const std::string from = StrCat(directory, "/", temporary);
  absl::Status status = BeforeStep(hook, "rename");
  if (status.ok() && rename(from.c_str(), StrCat(directory, "/", file).c_str()) != 0) {
    status = Failed("rename", from);
  }
  if (!status.ok()) unlink(from.c_str());
  return status;
}

absl::StatusOr<FileDescriptor> OpenDirectory(const std::string& directory) {
  FileDescriptor opened(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid()) return Failed("open", directory);
  return opened;
}

absl::Status SyncDirectory(const FileDescriptor& opened, const std::string& directory,
                           const StepHook& hook) {
  PHASOR_RETURN_IF_ERROR(BeforeStep(hook, "sync directory"));
  if (fsync(opened.get()) != 0) return Failed("sync", directory);
  return absl::OkStatus();
}

absl::Status RemoveFile(const std::string& directory, const std::string& file) {
  const std::string path = StrCat(directory, "/", file);
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return Failed("remove", path);
}

}  // namespace phasor::tables
