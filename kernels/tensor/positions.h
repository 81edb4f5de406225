// SPDX-License-Identifier: Apache-2.0
// Where tokens stand: ranges, grids, packed sequences or a tensor of numbers, all read as Q64.64.
#ifndef PHASOR_KERNELS_TENSOR_POSITIONS_H_
#define PHASOR_KERNELS_TENSOR_POSITIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"
#include "kernels/math/fixed_position.h"
#include "kernels/math/phase.h"

namespace phasor {

// What a user writes -----------------------------------------------------------------------------

struct IntegerRange {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};
struct RealRange {
  double start = 0;
  double step = 1;
  int64_t count = 0;
};
using AxisRange = std::variant<IntegerRange, RealRange>;
struct PositionGrid {
  std::vector<AxisRange> axes;  // row major, last axis fastest
};
struct RaggedPositions {
  std::vector<int64_t> lengths;
  std::vector<int64_t> offsets;  // empty: zeros
};
// INT32, INT64, FLOAT32 or FLOAT64 of shape [tokens] or [batch, tokens], with a trailing axes
// dimension exactly when the spec has several. The bytes travel beside it.
struct PositionTensor {
  Dtype dtype = Dtype::kInt64;
  std::vector<int64_t> shape;
};
using Positions = std::variant<AxisRange, PositionGrid, RaggedPositions, PositionTensor>;

// What kernels read ------------------------------------------------------------------------------

// Checked positions. Borrows `data`.
struct PositionSource {
  struct AxisSteps {
    Position start;
    Position step;
    int64_t count = 0;
  };
  enum class Kind : uint8_t { kGrid, kRagged, kTensor };

  Kind kind = Kind::kGrid;
  int axes = 1;
  int64_t batch = 1;   // extent of a leading batch dimension of a tensor, else 1
  int64_t tokens = 0;  // per batch entry
  std::array<AxisSteps, kMaxAxes> grid;
  int64_t first = 0;            // grid: the first token's index in it
  std::vector<int64_t> ends;    // ragged: running sum of lengths
  std::vector<int64_t> starts;  // ragged: position of the first token minus its index
  Dtype dtype = Dtype::kInt64;
  const std::byte* data = nullptr;  // tensor: [batch, tokens, axes], dense, any alignment
  int64_t data_bytes = 0;

  int64_t count() const { return batch * tokens; }
};

// Checks everything but the numbers of a tensor, whose bytes may not have arrived yet.
// INVALID_ARGUMENT: shapes, dtypes, negative counts, overflow, ranges that leave [-2^63, 2^63).
absl::StatusOr<PositionSource> MakePositionSource(const Positions& positions, int axes,
                                                  std::string_view path);

// Checks the numbers of a tensor: FLOAT positions must be finite and below 2^63 in magnitude.
absl::Status CheckPositionValues(const PositionSource& source, std::string_view path);

// Tokens first..first+count-1 of the source, batch entries counted as one sequence: 0 <= first,
// 0 <= count, first + count <= source.count(). Borrows the same data.
PositionSource SliceTokens(const PositionSource& source, int64_t first, int64_t count);

// Reads the positions of tokens first..first+count-1 into out[count * axes].
void ReadPositions(const PositionSource& source, int64_t first, int64_t count, Position* out);

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_POSITIONS_H_
