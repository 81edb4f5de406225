// SPDX-License-Identifier: Apache-2.0
// Rows of learned tables in scalar code that compilers vectorise. Contract: kernels/ops/lookup.h.
#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.h"
#include "kernels/reference/scalar.h"

namespace phasor::reference {
namespace {

template <typename Element, typename TableElement>
void LookupRow(const LookupArgs& args, const std::byte* from, const std::byte* add_to,
               std::byte* out) {
  using T = typename Element::Math;
  const T scale = static_cast<T>(args.embedding_scale);
  for (int64_t c = 0; c < args.columns; ++c) {
    T value = static_cast<T>(TableElement::Load(from + c * TableElement::kBytes));
    if (add_to != nullptr) {
      value = std::fma(scale, Element::Load(add_to + c * Element::kBytes), value);
    }
    Element::Store(value, out + c * Element::kBytes);
  }
}

}  // namespace

void Lookup(const LookupArgs& args) {
  const int64_t row_bytes = args.columns * SizeOf(args.table_dtype);
  for (int64_t t = 0; t < args.rows; ++t) {
    const int64_t row = std::clamp<int64_t>(args.positions[t].whole, 0, args.table_rows - 1);
    const std::byte* const from = args.table + row * row_bytes;
    const std::byte* const add_to =
        args.add_to == nullptr ? nullptr : args.add_to + t * args.add_to_row_bytes;
    std::byte* const out = args.out + t * args.out_row_bytes;
    if (add_to == nullptr && args.dtype == args.table_dtype) {
      std::memcpy(out, from, static_cast<size_t>(row_bytes));
      continue;
    }
    VisitElement(args.dtype, [&]<typename Element>(Element) {
      VisitElement(args.table_dtype, [&]<typename TableElement>(TableElement) {
        LookupRow<Element, TableElement>(args, from, add_to, out);
      });
    });
  }
}

}  // namespace phasor::reference
