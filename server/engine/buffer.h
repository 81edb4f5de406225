// SPDX-License-Identifier: Apache-2.0
// Memory for results: aligned and reference counted. Large blocks are pooled, so that their pages
// stay mapped.
#ifndef PHASOR_SERVER_ENGINE_BUFFER_H_
#define PHASOR_SERVER_ENGINE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "server/base/admission.h"

namespace phasor::engine {

// A block of uninitialised memory, aligned to 64 bytes, or to 4096 bytes from 64 KiB up.
// Threads: as plain memory.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual int64_t size() const = 0;
  // Returns the permit to its budget when this is destroyed.
  void Keep(Permit permit) { permit_ = std::move(permit); }

 protected:
  Permit permit_;
};
// The last reference returns the memory to its pool, also after the pool was destroyed.
using BufferRef = std::shared_ptr<Buffer>;

// A pool of buffers. Threads: any.
class BufferPool {
 public:
  // Keeps at most `keep_bytes` of returned memory, and at most `room` bytes if that is given.
  // `room` is called under a lock, on any thread, until the pool is destroyed.
  explicit BufferPool(int64_t keep_bytes, std::function<int64_t()> room = nullptr);
  ~BufferPool();
  // Returns a buffer of at least `bytes` >= 0; nullptr if the system has no memory.
  BufferRef Get(int64_t bytes);
  // Bytes of returned memory that are kept.
  int64_t kept_bytes() const;

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_BUFFER_H_
