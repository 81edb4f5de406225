// SPDX-License-Identifier: Apache-2.0
// See file_stamp.h. Symbolic links are followed: Kubernetes replaces a mounted secret by turning
// one.
#include "server/security/file_stamp.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace phasor::security {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

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
  const auto fail = [&](const std::string& problem) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": '", path, "' ", problem));
  };
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    return fail(absl::StrCat("cannot be read: ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) return fail("is not a file");
  if (info.st_size > kMaxFileBytes) return fail("is too large, must be at most 1 MiB");
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(info.st_size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) return fail("cannot be read, the server's user must be allowed to");
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace phasor::security
