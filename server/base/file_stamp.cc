// SPDX-License-Identifier: Apache-2.0
// Stamps of files. Follows symbolic links, because Kubernetes replaces a mounted file by changing a
// link.
#include "server/base/file_stamp.h"

#include <sys/stat.h>

namespace phasor {
namespace {

FileStamp ToStamp(const struct stat& info) {
  return {info.st_dev, info.st_ino, info.st_size,
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace

FileStamp StampOf(const std::string& path) {
  struct stat info = {};
  if (path.empty() || stat(path.c_str(), &info) != 0) return {};
  return ToStamp(info);
}

FileStamp StampOf(int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return {};
  return ToStamp(info);
}

}  // namespace phasor
