// SPDX-License-Identifier: Apache-2.0
// A table for tests, and a source that holds only it.
#ifndef PHASOR_TESTS_SUPPORT_TABLES_H_
#define PHASOR_TESTS_SUPPORT_TABLES_H_

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/sha256.h"
#include "kernels/tensor/table.h"

namespace phasor::testing {

// A table of the bytes of `values`.
template <typename T>
std::shared_ptr<const Table> MakeTable(std::string name, Dtype dtype, int64_t rows, int64_t columns,
                                       const std::vector<T>& values) {
  auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(T));
  std::memcpy(bytes->data(), values.data(), bytes->size());
  auto table = std::make_shared<Table>();
  table->name = std::move(name);
  table->dtype = dtype;
  table->rows = rows;
  table->columns = columns;
  table->sha256 = Sha256Hex(absl::MakeConstSpan(*bytes));
  table->data = {bytes, bytes->data()};
  return table;
}

class OneTable final : public TableSource {
 public:
  explicit OneTable(std::shared_ptr<const Table> table) : table_(std::move(table)) {}
  absl::StatusOr<std::shared_ptr<const Table>> Find(std::string_view name,
                                                    std::string_view path) const override {
    if (name == table_->name) return table_;
    return absl::NotFoundError(std::string(path) + ": no such table");
  }

 private:
  const std::shared_ptr<const Table> table_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_TABLES_H_
