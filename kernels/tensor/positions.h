// SPDX-License-Identifier: Apache-2.0
// Positions of tokens, given as ranges, grids, packed sequences or a tensor of numbers, and read as
// Q64.64. Threads: plain values and pure functions.
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

// What a caller writes ---------------------------------------------------------------------------

// The integers start, start + step, ...
struct IntegerRange {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};
// The real numbers start, start + step, ...
struct RealRange {
  double start = 0;
  double step = 1;
  int64_t count = 0;
};
using AxisRange = std::variant<IntegerRange, RealRange>;
// Every combination of positions on several axes.
struct PositionGrid {
  std::vector<AxisRange> axes;  // row major, last axis fastest
};
// Packed sequences: sequence s has positions offsets[s], offsets[s] + 1, ...
struct RaggedPositions {
  std::vector<int64_t> lengths;
  std::vector<int64_t> offsets;  // empty: zeros
};
// INT32, INT64, FLOAT32 or FLOAT64 of shape [tokens] or [batch, tokens]. There is one more
// dimension, the axes, exactly when the spec has several axes. The bytes are passed separately.
struct PositionTensor {
  Dtype dtype = Dtype::kInt64;
  std::vector<int64_t> shape;
};
using Positions = std::variant<AxisRange, PositionGrid, RaggedPositions, PositionTensor>;

// What kernels read ------------------------------------------------------------------------------

// Checked positions. Borrows `data`, which must live as long.
struct PositionSource {
  struct AxisSteps {
    Position start;
    Position step;
    int64_t count = 0;
  };
  enum class Kind : uint8_t { kGrid, kRagged, kTensor };

  Kind kind = Kind::kGrid;
  int axes = 1;
  int64_t batch = 1;   // extent of the batch dimension of a tensor, else 1
  int64_t tokens = 0;  // per batch entry
  std::array<AxisSteps, kMaxAxes> grid;
  int64_t first = 0;            // grid: index of the first token in it
  std::vector<int64_t> ends;    // ragged: running sum of lengths
  std::vector<int64_t> starts;  // ragged: position of the first token minus its index
  Dtype dtype = Dtype::kInt64;
  const std::byte* data = nullptr;  // tensor: [batch, tokens, axes], dense, any alignment
  int64_t data_bytes = 0;

  int64_t count() const { return batch * tokens; }
};

// Checks everything except the numbers of a tensor, whose bytes may not have arrived yet.
// INVALID_ARGUMENT for wrong shapes, dtypes, negative counts, overflow, and ranges that leave
// [-2^63, 2^63).
absl::StatusOr<PositionSource> MakePositionSource(const Positions& positions, int axes,
                                                  std::string_view path);

// Checks the numbers of a tensor: FLOAT positions must be finite and below 2^63 in magnitude.
absl::Status CheckPositionValues(const PositionSource& source, std::string_view path);

// Tokens first..first+count-1 of the source, with all batch entries counted as one sequence. Needs
// 0 <= first, 0 <= count and first + count <= source.count(). Borrows the same data.
PositionSource SliceTokens(const PositionSource& source, int64_t first, int64_t count);

// Writes the positions of tokens first..first+count-1 to out[count * axes].
void ReadPositions(const PositionSource& source, int64_t first, int64_t count, Position* out);

// Room for `kCount` positions that ReadPositions writes. It is not cleared, which would take longer
// than the rest of a small call.
template <int64_t kCount>
class PositionRoom {
 public:
  Position* data() { return reinterpret_cast<Position*>(bytes_); }

 private:
  alignas(Position) std::byte bytes_[kCount * sizeof(Position)];
};

}  // namespace phasor

#endif  // PHASOR_KERNELS_TENSOR_POSITIONS_H_
