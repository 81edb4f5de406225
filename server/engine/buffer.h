// SPDX-License-Identifier: Apache-2.0
// Output memory: aligned, reference counted, large ones pooled so that their pages stay mapped.
#ifndef PHASOR_SERVER_ENGINE_BUFFER_H_
#define PHASOR_SERVER_ENGINE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace phasor::engine {

// A block of memory, 64-byte aligned (4096 from 64 KiB up), not initialised.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual int64_t size() const = 0;
};
// The last reference returns the memory to its pool; safe after the pool is gone.
using BufferRef = std::shared_ptr<Buffer>;

// Threads: any.
class BufferPool {
 public:
  // Keeps at most `keep_bytes` of returned memory, and no more than `room` says, if given. `room`
  // is asked under a lock, on any thread, until the pool is destroyed.
  explicit BufferPool(int64_t keep_bytes, std::function<int64_t()> room = nullptr);
  ~BufferPool();
  // Memory of at least `bytes` >= 0, or nullptr when the system has none.
  BufferRef Get(int64_t bytes);
  // Returned memory that is kept.
  int64_t kept_bytes() const;

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_BUFFER_H_
