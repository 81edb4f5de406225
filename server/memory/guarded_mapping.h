// SPDX-License-Identifier: Apache-2.0
// GuardedMapping: mapped memory whose owner may shrink it at any time.
//
// Whoever touches mapped memory that has shrunk gets SIGBUS, which would end the server. The first
// mapping installs a handler: if the address lies in a guarded mapping, the handler puts a little
// memory of this process in its place, over and over, marks it as lost, and the thread goes on. So
// whoever used the memory must ask `lost` afterwards. Any other SIGBUS goes to the handler that was
// there before.
#ifndef PHASOR_SERVER_MEMORY_GUARDED_MAPPING_H_
#define PHASOR_SERVER_MEMORY_GUARDED_MAPPING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace phasor::memory {

// Owns the mapping. Threads: any.
class GuardedMapping {
 public:
  // Maps bytes [offset, offset + bytes) of `fd`, which the caller keeps; there is at least one, and
  // the end does not overflow. RESOURCE_EXHAUSTED: the system cannot map them.
  static absl::StatusOr<std::unique_ptr<const GuardedMapping>> Map(int fd, int64_t offset,
                                                                   int64_t bytes, bool writable);
  ~GuardedMapping();
  GuardedMapping(const GuardedMapping&) = delete;
  GuardedMapping& operator=(const GuardedMapping&) = delete;

  // The byte at `offset`.
  std::byte* data() const { return data_; }

  // Whether somebody touched memory that was not there. From then on, reads return zeros or what
  // was written anywhere in the mapping since, and no other process sees writes.
  bool lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  friend class BusErrors;
  GuardedMapping(std::byte* pages, size_t size, std::byte* data, bool writable)
      : pages_(pages), size_(size), data_(data), writable_(writable) {}

  std::byte* const pages_;  // whole pages, which hold `data_`
  const size_t size_;
  std::byte* const data_;
  const bool writable_;
  mutable std::atomic<bool> lost_ = false;
  mutable bool replaced_ = false;  // guarded by the handler's lock
};

}  // namespace phasor::memory

#endif  // PHASOR_SERVER_MEMORY_GUARDED_MAPPING_H_
