// SPDX-License-Identifier: Apache-2.0
// Learned tables as values: rows of numbers with a name. Also the interface that finds them by
// name.
#ifndef PHASOR_KERNELS_TENSOR_TABLE_H_
#define PHASOR_KERNELS_TENSOR_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"

namespace phasor {

// A learned table [rows, columns]: [positions, width] if absolute, [buckets, heads] if relative.
// Threads: a plain value whose data never changes. Copies share the data.
struct Table {
  std::string name;
  Dtype dtype = Dtype::kFloat32;          // a compute dtype
  int64_t rows = 0;                       // > 0
  int64_t columns = 0;                    // > 0
  std::string sha256;                     // of the data, 64 lower-case hexadecimal digits
  std::shared_ptr<const std::byte> data;  // dense, row major, any alignment

  int64_t bytes() const { return rows * columns * SizeOf(dtype); }
};

// What happens to a position for which an absolute table has no row.
enum class OutOfRange : uint8_t {
  kStrict,  // the call fails with OUT_OF_RANGE
  kClip,    // the nearest row is used
};

// Finds tables by name. Threads: any.
class TableSource {
 public:
  virtual ~TableSource() = default;
  // NOT_FOUND "<path>: ..." if there is no such table.
  virtual absl::StatusOr<std::shared_ptr<const Table>> Find(std::string_view name,
                                                            std::string_view path) const = 0;
};

// Whether `name` is [a-z0-9._-]{1,128} and does not begin with a dot. Encoders have such names too.
bool IsTableName(std::string_view name);
// INVALID_ARGUMENT unless IsTableName(name).
absl::Status CheckTableName(std::string_view name, std::string_view path);

// Finds the table called `name`. UNIMPLEMENTED if `tables` is nullptr, which means that the caller
// keeps no tables. Else the errors of CheckTableName and Find.
absl::StatusOr<std::shared_ptr<const Table>> FindTable(const TableSource* tables,
                                                       std::string_view name,
                                                       std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_TABLE_H_
