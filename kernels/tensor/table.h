// SPDX-License-Identifier: Apache-2.0
// Learned tables as values: rows of numbers under a name, and where names are looked up.
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

// [rows, columns]: [positions, width] of an absolute table, [buckets, heads] of a relative one.
// Threads: a plain value; the data does not change. Shares the data.
struct Table {
  std::string name;
  Dtype dtype = Dtype::kFloat32;          // a compute dtype
  int64_t rows = 0;                       // > 0
  int64_t columns = 0;                    // > 0
  std::string sha256;                     // of the data, 64 lower-case hexadecimal digits
  std::shared_ptr<const std::byte> data;  // dense, row major, any alignment

  int64_t bytes() const { return rows * columns * SizeOf(dtype); }
};

// What happens to a position that an absolute table has no row for.
enum class OutOfRange : uint8_t {
  kStrict,  // the call is OUT_OF_RANGE
  kClip,    // the nearest row
};

// Threads: any.
class TableSource {
 public:
  virtual ~TableSource() = default;
  // NOT_FOUND "<path>: ...": no such table.
  virtual absl::StatusOr<std::shared_ptr<const Table>> Find(std::string_view name,
                                                            std::string_view path) const = 0;
};

// Whether `name` is [a-z0-9._-]{1,128} and does not begin with a dot; encoders have such names too.
bool IsTableName(std::string_view name);
// INVALID_ARGUMENT unless it is.
absl::Status CheckTableName(std::string_view name, std::string_view path);

// The table called `name`. UNIMPLEMENTED: `tables` is nullptr, which is who keeps none. Else the
// errors of CheckTableName and Find.
absl::StatusOr<std::shared_ptr<const Table>> FindTable(const TableSource* tables,
                                                       std::string_view name,
                                                       std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_TABLE_H_
