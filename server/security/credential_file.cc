// SPDX-License-Identifier: Apache-2.0
// Reads credential files and their stamps. Follows symbolic links, because Kubernetes replaces a
// mounted secret by changing a link.
#include "server/security/file_stamp.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "server/base/regular_file.h"

namespace phasor::security {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

}  // namespace

FileStamp StampOf(const std::string& path) {
  struct stat info = {};
  if (path.empty() || stat(path.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino, info.st_size,
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

std::vector<FileStamp> StampsOf(const std::vector<std::string>& paths) {
  std::vector<FileStamp> stamps;
  for (const std::string& path : paths) stamps.push_back(StampOf(path));
  return stamps;
}

absl::StatusOr<std::string> ReadFile(const std::string& option, const std::string& path) {
  absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxFileBytes);
  if (text.ok()) return text;
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": '", path, "' ", text.status().message()));
}

}  // namespace phasor::security
