// SPDX-License-Identifier: Apache-2.0
// The memory of all tables together, and its limit.
#ifndef PHASOR_SERVER_TABLES_TABLE_MEMORY_H_
#define PHASOR_SERVER_TABLES_TABLE_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace phasor::tables {

// A limit on bytes and how many are used. Threads: any.
struct Budget {
  explicit Budget(int64_t limit) : limit_bytes(limit) {}
  const int64_t limit_bytes;
  std::atomic<int64_t> taken_bytes = 0;
};

// The bytes of one table, 64-byte aligned. Owns them. Bytes count against the budget from Take
// until the block is destroyed. Threads: one at a time.
class TableBlock {
 public:
  // bytes > 0. RESOURCE_EXHAUSTED: more than the whole budget, or than the system has.
  static absl::StatusOr<TableBlock> Allocate(std::shared_ptr<Budget> budget, int64_t bytes);

  TableBlock(TableBlock&& other) noexcept
      : budget_(std::move(other.budget_)),
        data_(std::move(other.data_)),
        size_(other.size_),
        taken_(std::exchange(other.taken_, 0)) {}
  TableBlock& operator=(TableBlock&&) = delete;
  ~TableBlock();

  // Counts `bytes` more against the budget. RESOURCE_EXHAUSTED: the budget is used up.
  absl::Status Take(int64_t bytes);

  std::byte* data() { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  TableBlock(std::shared_ptr<Budget> budget, std::byte* data, int64_t size)
      : budget_(std::move(budget)), data_(data), size_(size) {}

  std::shared_ptr<Budget> budget_;
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_ = 0;
  int64_t taken_ = 0;
};

}  // namespace phasor::tables

#endif  // PHASOR_SERVER_TABLES_TABLE_MEMORY_H_
