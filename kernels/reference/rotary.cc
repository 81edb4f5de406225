// SPDX-License-Identifier: Apache-2.0
// Rotary, in scalar code. Contract: kernels/ops/rotary.h.
#include <cstring>
#include <type_traits>

#include "kernels/reference/reference.h"
#include "kernels/reference/scalar.h"

namespace phasor::reference {
namespace {

// Sine and cosine, times the amplitude, by which `pair` of the table turns token t.
template <typename Element>
SinCos<typename Element::Math> TokenTrig(const RotaryArgs& args, int64_t t, int64_t pair) {
  const Position* to = args.positions + t * args.axes;
  uint64_t phase = PairPhase(*args.table, pair, to);
  Exponent exponent = PairExponent(args.xpos, pair, to);
  if (args.from_table != nullptr) {
    const Position* from = args.from_positions + t * args.from_axes;
    phase -= PairPhase(*args.from_table, pair, from);
    exponent -= PairExponent(args.from_xpos, pair, from);
  }
  double amplitude = args.amplitude;
  if (args.xpos != nullptr || args.from_xpos != nullptr) {
    amplitude *= Exp2(args.inverse ? -exponent : exponent);
  }
  return ScaledTrig<Element>(args.inverse ? -phase : phase, amplitude);
}

// The lane of component 0 or 1 of pair j.
int64_t Lane(const RotaryArgs& args, Pairing pairing, int64_t j, int component) {
  return args.rotary_begin + LaneOfPair(pairing, args.pairs, args.blocks, j, component);
}

// Writes lane `i` of a head of y.
template <typename Element>
void StoreLane(const RotaryArgs::Tensor& tensor, typename Element::Math value, std::byte* y,
               int64_t i) {
  if (tensor.float8 == Float8::kNone) return Element::Store(value, y + i * Element::kBytes);
  y[i] = scalar::ScaledFloat8(static_cast<float>(value), tensor.inv_scale, tensor.float8);
}

// Copies lanes [first, last).
template <typename Element>
void CopyLanes(const RotaryArgs::Tensor& tensor, const std::byte* x, std::byte* y, int64_t first,
               int64_t last) {
  constexpr int64_t kBytes = Element::kBytes;
  if (tensor.float8 == Float8::kNone) {
    std::memcpy(y + first * kBytes, x + first * kBytes, (last - first) * kBytes);
    return;
  }
  for (int64_t i = first; i < last; ++i) {
    StoreLane<Element>(tensor, Element::Load(x + i * kBytes), y, i);
  }
}

// Rotates one head. `row` is scratch for head_dim values: an in-place rotation may change the
// pairing.
template <typename Element>
void RotateHead(const RotaryArgs& args, const RotaryArgs::Tensor& tensor,
                const typename Element::Math* sin, const typename Element::Math* cos,
                const std::byte* x, std::byte* y, typename Element::Math* row) {
  using T = typename Element::Math;
  constexpr int64_t kBytes = Element::kBytes;
  for (int64_t j = 0; j < args.pairs; ++j) {
    const T x1 = Element::Load(x + Lane(args, args.pairing_in, j, 0) * kBytes);
    const T x2 = Element::Load(x + Lane(args, args.pairing_in, j, 1) * kBytes);
    row[2 * j] = std::fma(-x2, sin[j], x1 * cos[j]);
    row[2 * j + 1] = std::fma(x2, cos[j], x1 * sin[j]);
  }
  for (int64_t j = 0; j < args.pairs; ++j) {
    StoreLane<Element>(tensor, row[2 * j], y, Lane(args, args.pairing_out, j, 0));
    StoreLane<Element>(tensor, row[2 * j + 1], y, Lane(args, args.pairing_out, j, 1));
  }
  if (x == y) return;
  CopyLanes<Element>(tensor, x, y, 0, args.rotary_begin);
  CopyLanes<Element>(tensor, x, y, args.rotary_begin + 2 * args.pairs, args.head_dim);
}

// Rotates a head of stored keys: x and y are its rows. `form` and `to_form` have one head.
void RotateKeyRow(const RotaryArgs& args, const RotaryArgs::Tensor& tensor, const KeyForm& form,
                  const KeyForm& to_form, int64_t t, int64_t h, const float* sin, const float* cos,
                  float* row) {
  const KeyRows& rows = *tensor.rows;
  const std::byte* x_scale = nullptr;
  std::byte* y_scale = nullptr;
  if (form.scaled_rows) {
    x_scale = tensor.x + rows.x_scales[t] + h * form.scales.head_bytes;
    y_scale = tensor.y + rows.y_scales[t] + h * to_form.scales.head_bytes;
  }
  const std::byte* const x = tensor.x + tensor.x_offsets[t] + h * tensor.x_head_bytes;
  std::byte* const y = tensor.y + tensor.y_offsets[t] + h * tensor.y_head_bytes;
  auto* const lanes = reinterpret_cast<std::byte*>(args.lanes);
  DecodeKeys({&form, rows.window, x, x_scale, args.lanes});
  RotateHead<F32>(args, RotaryArgs::Tensor{}, sin, cos, lanes, lanes, row);
  EncodeKeys({&to_form, rows.window, args.lanes, y, y_scale});
}

template <typename Element>
void RotateTensor(const RotaryArgs& args, const RotaryArgs::Tensor& tensor) {
  using T = typename Element::Math;
  const int64_t table_pairs = args.frequency_heads * args.pairs;
  T* sin = reinterpret_cast<T*>(args.scratch);
  T* cos = sin + table_pairs;
  T* row = cos + table_pairs;
  KeyForm form, to_form;
  if (tensor.rows != nullptr) {
    form = *tensor.rows->form, to_form = *tensor.rows->to_form;
    form.heads = to_form.heads = 1;
  }
  for (int64_t t = 0; t < args.tokens; ++t) {
    const int64_t y_offset =
        tensor.y_offsets == nullptr ? t * tensor.y_token_bytes : tensor.y_offsets[t];
    if (y_offset < 0) continue;
    const int64_t x_offset =
        tensor.x_offsets == nullptr ? t * tensor.x_token_bytes : tensor.x_offsets[t];
    for (int64_t i = 0; i < table_pairs; ++i) {
      const int64_t pair = i / args.pairs * args.head_pairs + i % args.pairs;
      const SinCos<T> v = TokenTrig<Element>(args, t, pair);
      sin[i] = v.sin;
      cos[i] = v.cos;
    }
    for (int64_t h = 0; h < tensor.heads; ++h) {
      const std::byte* const x = tensor.x + x_offset + h * tensor.x_head_bytes;
      std::byte* const y = tensor.y + y_offset + h * tensor.y_head_bytes;
      const int64_t first = args.frequency_heads == 1 ? 0 : h * args.pairs;
      if constexpr (std::is_same_v<Element, F32>) {
        if (tensor.rows != nullptr) {
          RotateKeyRow(args, tensor, form, to_form, t, h, sin + first, cos + first, row);
          continue;
        }
      }
      if (tensor.rotates) {
        RotateHead<Element>(args, tensor, sin + first, cos + first, x, y, row);
      } else if (x != y) {
        CopyLanes<Element>(tensor, x, y, 0, args.head_dim);
      }
    }
  }
}

}  // namespace

void Rotary(const RotaryArgs& args) {
  for (int64_t i = 0; i < args.tensor_count; ++i) {
    VisitElement(args.tensors[i].dtype,
                 [&]<typename Element>(Element) { RotateTensor<Element>(args, args.tensors[i]); });
  }
}

}  // namespace phasor::reference
