// SPDX-License-Identifier: Apache-2.0
// Checks the seals of memfds, and maps them.
#include "server/memory/sealed_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <system_error>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/memory/range.h"

namespace phasor::memory {
namespace {

constexpr int64_t kBlockBytes = 512;  // unit of st_blocks
// Seals under which no process can free pages of the memory.
constexpr int kNoPunching = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;

// Whether page faults of `fd` cannot fail: huge pages may run out, and a client's own file system
// may refuse.
bool IsMemory(int fd) {
  struct statfs info = {};
  return fstatfs(fd, &info) == 0 && info.f_type == TMPFS_MAGIC;
}

}  // namespace

absl::StatusOr<int64_t> SealedMemory::SizeOf(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !IsMemory(fd))
    return Invalid("memory: not a memfd, or one with huge pages; must be a memfd without them");
  if ((seals & F_SEAL_SHRINK) == 0) {
    return Invalid("memory: may shrink; must be sealed with F_SEAL_SHRINK");
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0 || info.st_size <= 0) {
    return Invalid("memory: is empty; must have at least 1 byte");
  }
  const auto allocated = static_cast<int64_t>(info.st_blocks) * kBlockBytes;
  if (allocated < info.st_size) {
    return Invalid("memory: ", allocated, " of ", info.st_size,
                   " bytes are allocated; must be all of them (posix_fallocate)");
  }
  return static_cast<int64_t>(info.st_size);
}

absl::StatusOr<std::shared_ptr<const SealedMemory>> SealedMemory::Map(int fd) {
  PHASOR_ASSIGN_OR_RETURN(const int64_t bytes, SizeOf(fd));
  const auto size = static_cast<size_t>(bytes);
  bool writable = true;
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED && (fcntl(fd, F_GET_SEALS) & kNoPunching) != 0) {
    writable = false;
    data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  }
  if (data == MAP_FAILED && errno == EACCES) {
    return Invalid("memory: is open for reading only; must be sealed against writing");
  }
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(StrCat(
        "memory: ", bytes, " bytes cannot be mapped: ", std::generic_category().message(errno),
        "; lease less at a time"));
  }
  std::shared_ptr<const SealedMemory> memory(
      new SealedMemory(static_cast<std::byte*>(data), bytes, writable));
  // If the owner could free pages, this process would have to allocate them when it touches them.
  if (writable && fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0) {
    return Invalid("memory: its pages may be taken away; must take F_SEAL_FUTURE_WRITE");
  }
  PHASOR_RETURN_IF_ERROR(SizeOf(fd).status());  // pages may have been freed before
  return memory;
}

SealedMemory::~SealedMemory() { munmap(data_, static_cast<size_t>(bytes_)); }

absl::StatusOr<const std::byte*> SealedMemory::Read(int64_t offset, int64_t bytes,
                                                    const std::string& path) const {
  PHASOR_RETURN_IF_ERROR(CheckRange(offset, bytes, bytes_, "the region", path));
  return data_ + offset;
}

absl::StatusOr<std::byte*> SealedMemory::Write(int64_t offset, int64_t bytes,
                                               const std::string& path) const {
  PHASOR_RETURN_IF_ERROR(CheckRange(offset, bytes, bytes_, "the region", path));
  if (writable_) return data_ + offset;
  return absl::PermissionDeniedError(
      StrCat(path, ": the memory is sealed against writing; must be writable for outputs"));
}

}  // namespace phasor::memory
