// SPDX-License-Identifier: Apache-2.0
// Allocates result memory. Small buffers come from the allocator. Large ones are mapped in a few
// sizes and kept for reuse, because touching 16 MiB of new pages costs more than writing to them.
#include "server/engine/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <list>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace phasor::engine {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallAlignment = 64;
constexpr size_t kLarge = size_t{64} << 10;
constexpr size_t kMaxBytes = size_t{1} << 62;

struct Block {
  std::byte* data = nullptr;
  size_t capacity = 0;
};

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Four sizes per power of two, so at most a fifth of a block is unused.
size_t SizeClass(size_t bytes) { return RoundUp(bytes, std::bit_floor(bytes - 1) / 4); }

// Maps `capacity` bytes. From 2 MiB up, at the boundary of a huge page and in huge pages if
// possible.
Block Map(size_t capacity) {
  const size_t slack = capacity >= kHugePage ? kHugePage - kPage : 0;
  void* mapped = mmap(nullptr, capacity + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return {};
  auto* begin = static_cast<std::byte*>(mapped);
  if (slack == 0) return {begin, capacity};
  const size_t skipped =
      RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  if (skipped > 0) munmap(begin, skipped);
  if (slack > skipped) munmap(begin + skipped + capacity, slack - skipped);
  madvise(begin + skipped, capacity, MADV_HUGEPAGE);  // a hint: a failure only costs time
  return {begin + skipped, capacity};
}

void Unmap(Block block) { munmap(block.data, block.capacity); }

// Aligns memory of malloc by itself: aligned_alloc takes six times as long.
class SmallBuffer final : public Buffer {
 public:
  // `memory` has RoomFor(size) bytes.
  SmallBuffer(void* memory, int64_t size) : memory_(memory), size_(size) {}
  SmallBuffer(const SmallBuffer&) = delete;
  SmallBuffer& operator=(const SmallBuffer&) = delete;
  ~SmallBuffer() override { std::free(memory_); }

  static size_t RoomFor(size_t bytes) {
    return RoundUp(bytes + (bytes == 0), kSmallAlignment) + kSmallAlignment - 1;
  }

  std::byte* data() override {
    const auto begin = reinterpret_cast<uintptr_t>(memory_);
    return static_cast<std::byte*>(memory_) + (RoundUp(begin, kSmallAlignment) - begin);
  }
  int64_t size() const override { return size_; }

 private:
  void* const memory_;
  const int64_t size_;
};

}  // namespace

// The returned blocks, oldest first. Owns them. Threads: any.
struct BufferPool::Shelf {
  Shelf(size_t keep, std::function<int64_t()> room) : keep_bytes(keep), ask_room(std::move(room)) {}
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;
  ~Shelf() { Close(); }

  // Takes the block of this capacity that was returned last. Empty if there is none; the caller
  // then maps a new one.
  Block Take(size_t capacity) {
    std::list<Block> dropped;
    {
      MutexLock lock(&mu);
      const auto found = by_capacity.find(capacity);
      if (found != by_capacity.end()) {
        const auto newest = found->second.back();
        found->second.pop_back();
        if (found->second.empty()) by_capacity.erase(found);
        const Block block = *newest;
        blocks.erase(newest);
        kept_bytes -= block.capacity;
        return block;
      }
      DropBeyond(MostToKeep(), &dropped);
    }
    UnmapAll(dropped);
    return {};
  }

  void Return(Block block) {
    std::list<Block> dropped;  // unmapped after the lock is released
    {
      MutexLock lock(&mu);
      const size_t most = MostToKeep();
      if (block.capacity > most) {
        dropped.push_back(block);
      } else {
        DropBeyond(most - block.capacity, &dropped);
        by_capacity[block.capacity].push_back(blocks.insert(blocks.end(), block));
        kept_bytes += block.capacity;
      }
    }
    UnmapAll(dropped);
  }

  // Keeps no blocks from now on.
  void Close() {
    std::list<Block> dropped;
    {
      MutexLock lock(&mu);
      keep_bytes = 0;
      kept_bytes = 0;
      by_capacity.clear();
      dropped.swap(blocks);
    }
    UnmapAll(dropped);
  }

  size_t kept() {
    MutexLock lock(&mu);
    return kept_bytes;
  }

 private:
  // The caller must not hold the lock.
  static void UnmapAll(const std::list<Block>& dropped) {
    for (const Block& block : dropped) Unmap(block);
  }

  size_t MostToKeep() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (keep_bytes == 0 || ask_room == nullptr) return keep_bytes;
    return std::min(keep_bytes, static_cast<size_t>(std::max<int64_t>(ask_room(), 0)));
  }

  // Drops the oldest blocks until at most `bytes` are kept.
  void DropBeyond(size_t bytes, std::list<Block>* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    while (kept_bytes > bytes) {
      const auto same = by_capacity.find(blocks.front().capacity);
      same->second.pop_front();
      if (same->second.empty()) by_capacity.erase(same);
      kept_bytes -= blocks.front().capacity;
      dropped->splice(dropped->end(), blocks, blocks.begin());
    }
  }

  Mutex mu;
  size_t keep_bytes ABSL_GUARDED_BY(mu);  // 0: closed; `ask_room` is not called any more
  const std::function<int64_t()> ask_room;
  size_t kept_bytes ABSL_GUARDED_BY(mu) = 0;
  std::list<Block> blocks ABSL_GUARDED_BY(mu);
  std::map<size_t, std::deque<std::list<Block>::iterator>> by_capacity ABSL_GUARDED_BY(mu);
};

namespace {

// A large buffer. Returns its block to the shelf, which it keeps alive.
template <typename Shelf>
class LargeBuffer final : public Buffer {
 public:
  LargeBuffer(std::shared_ptr<Shelf> shelf, Block block, int64_t size)
      : shelf_(std::move(shelf)), block_(block), size_(size) {}
  LargeBuffer(const LargeBuffer&) = delete;
  LargeBuffer& operator=(const LargeBuffer&) = delete;
  ~LargeBuffer() override {
    permit_ = Permit();  // the shelf asks for the room that is left
    shelf_->Return(block_);
  }
  std::byte* data() override { return block_.data; }
  int64_t size() const override { return size_; }

 private:
  const std::shared_ptr<Shelf> shelf_;
  const Block block_;
  const int64_t size_;
};

}  // namespace

BufferPool::BufferPool(int64_t keep_bytes, std::function<int64_t()> room)
    : shelf_(std::make_shared<Shelf>(static_cast<size_t>(keep_bytes), std::move(room))) {}

BufferPool::~BufferPool() { shelf_->Close(); }

int64_t BufferPool::kept_bytes() const { return static_cast<int64_t>(shelf_->kept()); }

BufferRef BufferPool::Get(int64_t bytes) {
  const auto wanted = static_cast<size_t>(bytes);
  if (bytes < 0 || wanted > kMaxBytes) return nullptr;
  if (wanted < kLarge) {
    void* const memory = std::malloc(SmallBuffer::RoomFor(wanted));
    return memory == nullptr ? nullptr : std::make_shared<SmallBuffer>(memory, bytes);
  }
  const size_t capacity = SizeClass(wanted);
  Block block = shelf_->Take(capacity);
  if (block.data == nullptr) block = Map(capacity);
  if (block.data == nullptr) return nullptr;
  return std::make_shared<LargeBuffer<Shelf>>(shelf_, block, bytes);
}

}  // namespace phasor::engine
