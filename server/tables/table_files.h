// SPDX-License-Identifier: Apache-2.0
// Tables as files in a directory: reads .safetensors and .npy, and writes so that a crash leaves
// either the old file or the new one.
#ifndef PHASOR_SERVER_TABLES_TABLE_FILES_H_
#define PHASOR_SERVER_TABLES_TABLE_FILES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/tensor/table.h"
#include "server/base/file_descriptor.h"
#include "server/base/file_stamp.h"
#include "server/tables/table_memory.h"

namespace phasor::tables {

// Names of the files in `directory` that hold tables (*.safetensors and *.npy that do not begin
// with a dot), in alphabetical order. Removes temporary files that nobody has written to for an
// hour: a crash during an upload left them. Younger ones may be uploads to other servers.
// FAILED_PRECONDITION: the directory cannot be read.
absl::StatusOr<std::vector<std::string>> ListTableFiles(const std::string& directory);

// The tables of a file, and the stamp of the file that they were read from.
struct TableFile {
  FileStamp stamp;
  std::vector<std::shared_ptr<const Table>> tables;
};

// Reads the tables of a file. A single tensor is called FILE, several are called FILE.TENSOR; FILE
// is without extension and ".uploaded", in lower case. Leading dimensions of 1 are dropped until
// two dimensions are left.
// FAILED_PRECONDITION "<file>: ...": the file is unreadable. INVALID_ARGUMENT: it is malformed
// (kernels/tensor/safetensors.h, kernels/tensor/npy.h), or a tensor is not a table or has no valid
// name. RESOURCE_EXHAUSTED: no memory.
absl::StatusOr<TableFile> ReadTableFile(const std::string& directory, const std::string& file,
                                        const std::shared_ptr<Budget>& budget);

// File name of an upload of `name`: NAME.uploaded.safetensors. So an upload never overwrites a file
// that someone put there.
std::string UploadFileName(const std::string& name);
bool IsUploadFile(std::string_view file);

// Called before each step of a write: "create", "write", "sync", "rename", "sync directory"; and
// before a file is read: "read". If it returns an error, the write or read ends there. For tests.
using StepHook = std::function<absl::Status(const std::string& step)>;

// A file that is not in place yet.
struct TemporaryFile {
  std::string name;
  FileStamp stamp;  // which it keeps when it is renamed
};

// First part of a write: writes all bytes to a temporary file. The bytes are on disk when this
// returns. RESOURCE_EXHAUSTED: there is no room on the disk. INTERNAL: the system failed otherwise.
// Messages name no path of the server; its log does.
absl::StatusOr<TemporaryFile> WriteTemporaryFile(const std::string& directory, const Table& table,
                                                 const StepHook& hook);
// Second part: renames the file from WriteTemporaryFile to `file`, replacing an old one. The
// temporary file is gone afterwards, also on failure.
absl::Status RenameIntoPlace(const std::string& directory, const std::string& temporary,
                             const std::string& file, const StepHook& hook);
// Opens the directory for SyncDirectory, before anything in it changes: later there might be no
// descriptor. INTERNAL: the system failed.
absl::StatusOr<FileDescriptor> OpenDirectory(const std::string& directory);
// Makes renames and removals durable.
absl::Status SyncDirectory(const FileDescriptor& opened, const std::string& directory,
                           const StepHook& hook);

// Removes a file. OK if there is none. INTERNAL: the system failed.
absl::Status RemoveFile(const std::string& directory, const std::string& file);

}  // namespace phasor::tables

#endif  // PHASOR_SERVER_TABLES_TABLE_FILES_H_
