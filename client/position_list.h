// SPDX-License-Identifier: Apache-2.0
// PositionList, the positions of a call: numbers, a container, a range, a grid, packed sequences,
// or a tensor.
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

// Element types of positions. 16-bit floats are not among them: BFLOAT16 cannot represent 257.
template <typename T>
concept PositionElement = std::same_as<T, int32_t> || std::same_as<T, int64_t> ||
    std::same_as<T, float> || std::same_as<T, double>;

// One position in an initializer list: an integer or a real number.
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

// The position of every token of a call.
//
// A plain value that is cheap to copy. Owns numbers in an initializer list and vectors that are
// moved in. Borrows all other memory, which must live until the call is done.
class PositionList {
 public:
  // An empty list: no tokens.
  PositionList() = default;

  // {10, 12, 16, 100} are integers. If one number is real, as in {0.37, 1}, all are.
  PositionList(std::initializer_list<PositionValue> values);  // NOLINT: all of these convert

  // A vector, span or array with one position per token. Borrows it.
  template <typename C, typename T = std::remove_cv_t<
                            std::remove_pointer_t<decltype(std::data(std::declval<const C&>()))>>>
  requires PositionElement<T> PositionList(const C& values)  // NOLINT
      : PositionList(View(values, {static_cast<int64_t>(std::size(values))})) {}

  // Takes a vector over and owns it.
  template <PositionElement T>
  PositionList(std::vector<T>&& values) {  // NOLINT
    auto owned = std::make_shared<std::vector<T>>(std::move(values));
    *this = PositionList(*owned);
    owned_ = std::move(owned);
  }

  // A dense tensor of shape [tokens] or [batch, tokens], with one more dimension for the axes at
  // the end if the spec has several. Borrows it.
  PositionList(const TensorView& tensor);   // NOLINT
  PositionList(const MutableTensorView& t)  // NOLINT
      : PositionList(TensorView(t)) {}

  PositionList(IntegerRange range) : value_(AxisRange(range)) {}       // NOLINT
  PositionList(RealRange range) : value_(AxisRange(range)) {}          // NOLINT
  PositionList(PositionGrid grid) : value_(std::move(grid)) {}         // NOLINT
  PositionList(RaggedPositions ragged) : value_(std::move(ragged)) {}  // NOLINT

  const Positions& value() const { return value_; }
  // All memory of the tensor that the caller passed.
  absl::Span<const std::byte> bytes() const { return bytes_; }
  // Whether the tensor has strides; ToRequest then refuses the call.
  bool strided() const { return strided_; }
  // Whether the tensor is on a GPU; ToRequest then refuses the call.
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
