// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/invalid.h"
#include "kernels/base/text.h"

namespace phasor::cli {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return absl::NotFoundError(
        StrCat(path, ": cannot be opened; must be a file that you may read"));
  }
  struct stat status = {};
  const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<size_t>(regular ? status.st_size : 0);
  void* const start = size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (size == 0) return InvalidAt(path, "is no file, or empty; must be a file with keys");
  if (start == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        StrCat(path, ": ", size, " bytes cannot be mapped; must fit the address space"));
  }
  MappedFile mapped;
  mapped.mapping_ = std::shared_ptr<const void>(
      start, [size](const void* p) { munmap(const_cast<void*>(p), size); });
  mapped.bytes_ = {static_cast<const std::byte*>(start), size};
  return mapped;
}

}  // namespace phasor::cli
