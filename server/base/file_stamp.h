// SPDX-License-Identifier: Apache-2.0
// FileStamp: detects that a file was written or replaced, without reading it.
#ifndef PHASOR_SERVER_BASE_FILE_STAMP_H_
#define PHASOR_SERVER_BASE_FILE_STAMP_H_

#include <cstdint>
#include <string>

namespace phasor {

// The file that a path leads to, and when it was written. All zero if there is none.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;

  bool operator==(const FileStamp&) const = default;
};

FileStamp StampOf(const std::string& path);
// Of an open file.
FileStamp StampOf(int fd);

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_FILE_STAMP_H_
