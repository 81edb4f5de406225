// SPDX-License-Identifier: Apache-2.0
// Opens and maps shared memory of clients, and checks ranges of it.
#include "server/memory/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/memory/range.h"

namespace phasor::memory {
namespace {

constexpr size_t kMaxKeyBytes = 255;

std::string SystemError(int error) { return std::generic_category().message(error); }

// A key is one name, with or without a leading slash.
absl::Status CheckKey(const std::string& key, std::string_view path) {
  const std::string name = key.starts_with('/') ? key.substr(1) : key;
  const bool is_name = !name.empty() && name.size() <= kMaxKeyBytes && name != "." &&
                       name != ".." && name.find_first_of(std::string("/\0", 2)) == name.npos;
  if (is_name) return absl::OkStatus();
  return InvalidAt(path, "not a name of shared memory; must be / and 1 to 255 bytes without /");
}

absl::Status OpenError(int error, const std::string& key, std::string_view path) {
  const std::string message =
      StrCat(path, ": '", key, "' cannot be opened (", SystemError(error),
             "); must be shared memory of this host that the server's user may open");
  if (error == ENOENT) return absl::NotFoundError(message);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(message);
  if (error == EMFILE || error == ENFILE) return absl::ResourceExhaustedError(message);
  return absl::InvalidArgumentError(message);
}

// Size of the memory behind `fd`. INVALID_ARGUMENT: it is not memory.
absl::StatusOr<int64_t> SizeOfMemory(int fd, std::string_view path) {
  struct stat info = {};
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) return static_cast<int64_t>(info.st_size);
  return InvalidAt(path, "not shared memory; must be made with shm_open or memfd_create");
}

absl::Status CheckFits(const RegionPlace& place, int64_t size, std::string_view path) {
  return CheckPlace(place.offset, place.bytes, size, StrCat("'", place.key, "'"), path);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Region>> Region::Open(RegionPlace place, const Paths& paths) {
  PHASOR_RETURN_IF_ERROR(CheckKey(place.key, paths.key));
  // Without O_NONBLOCK, opening a pipe, or a file on which another process holds a lease, would
  // block.
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  bool writable = !place.read_only;
  FileDescriptor fd(shm_open(place.key.c_str(), kFlags | (writable ? O_RDWR : O_RDONLY), 0));
  if (!fd.valid() && errno == EACCES && writable) {
    writable = false;
    fd = FileDescriptor(shm_open(place.key.c_str(), kFlags | O_RDONLY, 0));
  }
  if (!fd.valid()) return OpenError(errno, place.key, paths.key);
  PHASOR_ASSIGN_OR_RETURN(const int64_t size, SizeOfMemory(fd.get(), paths.key));
  PHASOR_RETURN_IF_ERROR(CheckFits(place, size, paths.bytes));
  auto mapping = GuardedMapping::Map(fd.get(), place.offset, place.bytes, writable);
  if (!mapping.ok()) {
    return absl::ResourceExhaustedError(StrCat(paths.bytes, ": ", mapping.status().message()));
  }
  return std::shared_ptr<const Region>(
      new Region(std::move(place), std::move(fd), writable, *std::move(mapping)));
}

absl::StatusOr<std::byte*> Region::At(int64_t offset, int64_t bytes,
                                      const std::string& path) const {
  PHASOR_RETURN_IF_ERROR(CheckRange(offset, bytes, place_.bytes, "the region", path));
  return mapping_->data() + offset;
}

absl::Status Region::CheckWritable(const std::string& path) const {
  if (writable_) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat(path, ": the server may only read this memory; let its user write to it"));
}

absl::Status Region::CheckWhole(const std::string& path) const {
  PHASOR_ASSIGN_OR_RETURN(const int64_t size, SizeOfMemory(fd_.get(), path));
  if (!CheckFits(place_, size, path).ok()) {
    return InvalidAt(path,
                     "the shared memory was shrunk after its registration; must keep its size");
  }
  if (!mapping_->lost()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat(path,
             ": parts of the shared memory were missing, because it was shrunk or the system "
             "has no pages for it; allocate all of it (posix_fallocate) and register again"));
}

}  // namespace phasor::memory
