// SPDX-License-Identifier: Apache-2.0
// Allocates the memory of tables, and counts it against the common budget.
#include "server/tables/table_memory.h"

#include "kernels/base/text.h"

namespace phasor::tables {

absl::StatusOr<TableBlock> TableBlock::Allocate(std::shared_ptr<Budget> budget, int64_t bytes) {
  if (bytes > budget->limit_bytes) {
    return absl::ResourceExhaustedError(StrCat("table: ", bytes, " bytes; must be at most ",
                                               budget->limit_bytes,
                                               ", for all tables together (--max-tables-bytes)"));
  }
  const auto rounded = static_cast<size_t>((bytes + 63) / 64 * 64);
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  if (data == nullptr) {
    return absl::ResourceExhaustedError(StrCat(
        "table: no memory for ", bytes, " bytes; delete other tables, or give the server more"));
  }
  return TableBlock(std::move(budget), data, bytes);
}

TableBlock::~TableBlock() {
  if (budget_ != nullptr) budget_->taken_bytes.fetch_sub(taken_);
}

absl::Status TableBlock::Take(int64_t bytes) {
  if (budget_->taken_bytes.fetch_add(bytes) + bytes <= budget_->limit_bytes) {
    taken_ += bytes;
    return absl::OkStatus();
  }
  budget_->taken_bytes.fetch_sub(bytes);
  return absl::ResourceExhaustedError(
      StrCat("table: no room for ", bytes, " more bytes beside the others, together at most ",
             budget_->limit_bytes, "; delete some or raise --max-tables-bytes"));
}

}  // namespace phasor::tables
