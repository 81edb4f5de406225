// SPDX-License-Identifier: Apache-2.0
// Positions as a caller has them: numbers written out, a container, a range, a grid, packed
// sequences, or a tensor.
#ifndef PHASOR_CLIENT_POSITION_LIST_H_
#define PHASOR_CLIENT_POSITION_LIST_H_

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "client/tensor.h"
#include "kernels/tensor/positions.h"

namespace phasor {

// Element types that positions come in. 16-bit floats cannot hold position 257.
template <typename T>
concept PositionElement = std::same_as<T, int32_t> || std::same_as<T, int64_t> ||
    std::same_as<T, float> || std::same_as<T, double>;

// One position written out: an integer or a real number.
class PositionValue {
 public:
  template <std::signed_integral I>
  PositionValue(I value) : integer_(value), real_(static_cast<double>(value)) {}  // NOLINT
  PositionValue(double value) : real_(value), is_real_(true) {}                   // NOLINT

  bool is_real() const { return is_real_; }
  int64_t integer() const { return integer_; }
  double real() const { return real_; }

 private:
  int64_t integer_ = 0;
  double real_ = 0;
  bool is_real_ = false;
};

// Where the tokens of a call stand.
// Threads: a plain value, cheap to copy. Owns numbers written out and containers moved in; borrows
// other memory, which must then live until the call is done.
class PositionList {
 public:
  // No tokens.
  PositionList() = default;

  // {10, 12, 16, 100}: integers; {0.37, 1}: reals as soon as one of them is.
  PositionList(std::initializer_list<PositionValue> values);  // NOLINT: all of these convert

  // A vector, span or array: one position per token. Borrows.
  template <typename C, typename T = std::remove_cv_t<
                            std::remove_pointer_t<decltype(std::data(std::declval<const C&>()))>>>
  requires PositionElement<T> PositionList(const C& values)  // NOLINT
      : PositionList(View(values, {static_cast<int64_t>(std::size(values))})) {}

  // Owns.
  template <PositionElement T>
  PositionList(std::vector<T>&& values) {  // NOLINT
    auto owned = std::make_shared<std::vector<T>>(std::move(values));
    *this = PositionList(*owned);
    owned_ = std::move(owned);
  }

  // Shape [tokens] or [batch, tokens], with a trailing axes dimension when the spec has several
  // axes. Dense. Borrows.
  PositionList(const TensorView& tensor);   // NOLINT
  PositionList(const MutableTensorView& t)  // NOLINT
      : PositionList(TensorView(t)) {}

  PositionList(IntegerRange range) : value_(AxisRange(range)) {}       // NOLINT
  PositionList(RealRange range) : value_(AxisRange(range)) {}          // NOLINT
  PositionList(PositionGrid grid) : value_(std::move(grid)) {}         // NOLINT
  PositionList(RaggedPositions ragged) : value_(std::move(ragged)) {}  // NOLINT

  const Positions& value() const { return value_; }
  // Memory of a tensor, all that the caller said is there.
  absl::Span<const std::byte> bytes() const { return bytes_; }
  // Whether a tensor was given with strides, which positions may not have.
  bool strided() const { return strided_; }
  // Whether a tensor of a GPU was given, where positions may not be.
  bool on_device() const { return on_device_; }

 private:
  Positions value_;
  absl::Span<const std::byte> bytes_;
  bool strided_ = false;
  bool on_device_ = false;
  std::shared_ptr<const void> owned_;
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_POSITION_LIST_H_
