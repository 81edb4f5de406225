// SPDX-License-Identifier: Apache-2.0
// Files of credentials: reads them and detects changes.
#ifndef PHASOR_SERVER_SECURITY_FILE_STAMP_H_
#define PHASOR_SERVER_SECURITY_FILE_STAMP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace phasor::security {

// The file that a path leads to, and when it was written. All zero if there is none.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;

  bool operator==(const FileStamp&) const = default;
};

FileStamp StampOf(const std::string& path);
// Stamps of several paths. An empty path counts as a missing file.
std::vector<FileStamp> StampsOf(const std::vector<std::string>& paths);

// Reads a regular file. INVALID_ARGUMENT "<option>: ...": it cannot be read, is not a regular file,
// or has more than 1 MiB.
absl::StatusOr<std::string> ReadFile(const std::string& option, const std::string& path);

}  // namespace phasor::security

#endif  // PHASOR_SERVER_SECURITY_FILE_STAMP_H_
