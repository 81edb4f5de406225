// SPDX-License-Identifier: Apache-2.0
// Tables as files of a directory: reading .safetensors and .npy, writing so that a crash leaves
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
#include "server/tables/table_memory.h"

namespace phasor::tables {

// Names of the files in `directory` that hold tables (*.safetensors, *.npy; none that begin with a
// dot), in alphabetical order. Removes what uploads left behind that a crash cut off.
// FAILED_PRECONDITION: the directory cannot be read.
absl::StatusOr<std::vector<std::string>> ListTableFiles(const std::string& directory);

// The tables of one file. A single tensor is called FILE, several FILE.TENSOR, without extension
// (and ".uploaded") and in lower case. Leading dimensions of 1 are dropped until two are left.
// FAILED_PRECONDITION "<file>: ...": not readable, malformed (kernels/tensor/safetensors.h,
// kernels/tensor/npy.h), a tensor that is no table or has no valid name. RESOURCE_EXHAUSTED: no
// memory.
absl::StatusOr<std::vector<std::shared_ptr<const Table>>> ReadTableFile(
    const std::string& directory, const std::string& file, const std::shared_ptr<Budget>& budget);

// Name of the file that an upload of `name` makes: NAME.uploaded.safetensors, so that uploads never
// touch a file that somebody put there.
std::string UploadFileName(const std::string& name);
bool IsUploadFile(std::string_view file);

// Called before each step of a write ("create", "write", "sync", "rename", "sync directory"); its
// error ends the write there. For tests.
using StepHook = std::function<absl::Status(const std::string& step)>;

// Writes UploadFileName(table.name) in two parts: all bytes to a temporary file, on disk when this
// returns (its name), and the rename over what was there. INTERNAL: the system refused.
absl::StatusOr<std::string> WriteTemporaryFile(const std::string& directory, const Table& table,
                                               const StepHook& hook);
// Takes the name that WriteTemporaryFile gave; the file is gone from it in any case.
absl::Status RenameIntoPlace(const std::string& directory, const std::string& temporary,
                             const std::string& file, const StepHook& hook);
// Makes renames and removals durable.
absl::Status SyncDirectory(const std::string& directory, const StepHook& hook);

// OK when there is none. INTERNAL: the system refused.
absl::Status RemoveFile(const std::string& directory, const std::string& file);

}  // namespace phasor::tables

#endif  // PHASOR_SERVER_TABLES_TABLE_FILES_H_
