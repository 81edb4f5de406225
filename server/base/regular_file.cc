// SPDX-License-Identifier: Apache-2.0
// Reads files. Opens without blocking, and checks the type of the file before it reads.
#include "server/base/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "server/base/file_descriptor.h"

namespace phasor {
namespace {

absl::Status CannotBeRead(int error) {
  const std::string what =
      absl::StrCat("cannot be read (", std::generic_category().message(error), "); ");
  if (error == EMFILE || error == ENFILE || error == ENOMEM || error == EIO) {
    return absl::UnavailableError(absl::StrCat(what, "try again later"));
  }
  return absl::NotFoundError(absl::StrCat(what, "must be readable by this user"));
}

}  // namespace

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t max_bytes) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat about = {};
  if (!file.valid() || fstat(file.get(), &about) != 0) return CannotBeRead(errno);
  if (!S_ISREG(about.st_mode)) return Invalid("is not a regular file; give the path of one");
  std::string text;
  char part[16384];
  while (text.size() <= max_bytes) {
    const ssize_t n = read(file.get(), part, sizeof(part));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return CannotBeRead(errno);
    if (n == 0) return text;
    text.append(part, static_cast<size_t>(n));
  }
  return Invalid("is larger than ", max_bytes, " bytes; make it smaller");
}

}  // namespace phasor
