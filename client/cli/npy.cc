// SPDX-License-Identifier: Apache-2.0
// Reads and writes .npy files.
#include "client/cli/npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::cli {
namespace {

// A new file in the folder of `path`, with the owner and the permissions of the file there. It has
// no name, so that a process that is killed leaves nothing; or `part`, where that cannot be. -1: it
// cannot be made so.
int OpenBeside(const std::string& path, const struct stat& old, const std::string& part) {
  unlink(part.c_str());
  std::string folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  int file = -1;
  if (access("/proc/self/fd", X_OK) == 0) {  // for GiveName
    file = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  }
  if (file < 0) file = open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return -1;
  if (fchown(file, old.st_uid, old.st_gid) == 0 && fchmod(file, old.st_mode & 07777) == 0) {
    return file;
  }
  close(file);
  unlink(part.c_str());
  return -1;
}

bool GiveName(int file, const std::string& part) {
  return access(part.c_str(), F_OK) == 0 || linkat(AT_FDCWD, StrCat("/proc/self/fd/", file).c_str(),
                                                   AT_FDCWD, part.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

bool WriteAll(int file, std::initializer_list<std::string_view> parts) {
  for (std::string_view rest : parts) {
    while (!rest.empty()) {
      const ssize_t n = write(file, rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return false;
      rest.remove_prefix(static_cast<size_t>(n));
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<NpyArray> ReadNpy(const std::string& path, bool u2_as_bf16) {
  std::error_code error;
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  std::ifstream file(path, std::ios::binary);
  if (error || !file)
    return absl::NotFoundError(
        StrCat(path, ": cannot be opened; must be a file that you may read"));
  std::string start(static_cast<size_t>(std::min(file_bytes, kMaxNpyHeaderBytes + 16)), '\0');
  if (!file.read(start.data(), static_cast<std::streamsize>(start.size()))) {
    return InvalidAt(path, "cannot be read to its end; must be a whole file");
  }
  PHASOR_ASSIGN_OR_RETURN(const NpyHeader header,
                          ParseNpyHeader(start, file_bytes, u2_as_bf16, path));
  NpyArray array{.dtype = header.tensor.dtype, .shape = header.tensor.shape};
  PHASOR_ASSIGN_OR_RETURN(array.bytes, Bytes::Allocate(header.data_bytes));
  file.seekg(header.data_begin);
  if (!file.read(reinterpret_cast<char*>(array.bytes.data()), header.data_bytes)) {
    return InvalidAt(path, "cannot be read to its end; must be a whole file");
  }
  return array;
}

absl::Status WriteNpy(const std::string& path, const TensorView& tensor) {
  return WriteFile(
      path, {FormatNpyHeader(tensor.desc),
             {reinterpret_cast<const char*>(tensor.data), static_cast<size_t>(tensor.bytes)}});
}

absl::Status WriteFile(const std::string& path, std::initializer_list<std::string_view> parts) {
  struct stat old = {};
  const bool keeps = lstat(path.c_str(), &old) == 0 && S_ISREG(old.st_mode) && old.st_nlink == 1 &&
                     access(path.c_str(), W_OK) == 0;
  const std::string part = StrCat(path, ".", getpid(), ".part");
  int file = keeps ? OpenBeside(path, old, part) : -1;
  const bool beside = file >= 0;
  if (!beside) {  // nothing to keep, or its folder takes no other file
    file = IsStandardOutput(path)
               ? dup(STDOUT_FILENO)
               : open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  if (file < 0) return CannotWrite(path);
  absl::Status status = WriteAll(file, parts) && (!beside || GiveName(file, part))
                            ? absl::OkStatus()
                            : CannotWrite(path);
  if (close(file) != 0 && status.ok()) status = CannotWrite(path);
  if (!beside) return status;
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0) status = CannotWrite(path);
  if (!status.ok()) unlink(part.c_str());
  return status;
}

bool IsStandardOutput(const std::string& path) {
  struct stat named = {}, out = {};
  return stat(path.c_str(), &named) == 0 && fstat(STDOUT_FILENO, &out) == 0 &&
         named.st_dev == out.st_dev && named.st_ino == out.st_ino && !S_ISCHR(out.st_mode);
}

absl::Status CannotWrite(const std::string& path) {
  return Invalid("--output: ", path, " cannot be written (", std::generic_category().message(errno),
                 "); must be a place where you may write");
}

}  // namespace phasor::cli
