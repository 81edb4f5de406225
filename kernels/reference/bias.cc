// SPDX-License-Identifier: Apache-2.0
// Attention biases in scalar code that compilers vectorise. Contract: kernels/ops/bias.h.
#include <algorithm>

#include "kernels/reference/reference.h"
#include "kernels/reference/scalar.h"

namespace phasor::reference {
namespace {

int64_t T5Index(const BiasRule& rule, int64_t query, int64_t key) {
  const int64_t after = key - query;  // |positions| < 2^62
  if (!rule.bidirectional) return rule.buckets.Of(std::max<int64_t>(-after, 0));
  return (after > 0 ? rule.direction_rows : 0) + rule.buckets.Of(after > 0 ? after : -after);
}

int64_t SwinIndex(const BiasRule& rule, const Position* query, const Position* key) {
  const auto [height, width] = rule.window;
  const int64_t dy = query[0].whole - key[0].whole + height - 1;
  const int64_t dx = query[1].whole - key[1].whole + width - 1;
  return dy * (2 * width - 1) + dx;
}

int64_t DebertaIndex(const BiasRule& rule, int64_t query, int64_t key) {
  const int64_t before = query - key;
  return before < 0 ? -rule.buckets.Of(-before) : rule.buckets.Of(before);
}

// Writes index[q, k] for one query and all keys of the tile.
void Indices(const BiasArgs& args, const Position* query, int64_t* out) {
  const BiasRule& rule = *args.rule;
  for (int64_t i = 0; i < args.columns; ++i) {
    const Position* const key = args.keys + i * rule.axes;
    switch (rule.family) {
      case BiasFamily::kT5:
        out[i] = T5Index(rule, query->whole, key->whole);
        break;
      case BiasFamily::kClipped:
        out[i] = std::clamp(key->whole - query->whole, -rule.clip, rule.clip) + rule.clip;
        break;
      case BiasFamily::kSwin:
        out[i] = SwinIndex(rule, query, key);
        break;
      case BiasFamily::kDeberta:
        out[i] = DebertaIndex(rule, query->whole, key->whole);
        break;
      case BiasFamily::kAlibi:
      case BiasFamily::kAlibiKey:
        out[i] = 0;  // has no table
        break;
    }
  }
}

// Writes the number that the slope multiplies, for each key.
template <typename T>
void Distances(const BiasArgs& args, const Position* query, T* out) {
  for (int64_t i = 0; i < args.columns; ++i) {
    const int64_t key = args.keys[i].whole;
    const int64_t before = query->whole - key;
    out[i] = args.rule->family == BiasFamily::kAlibi
                 ? -static_cast<T>(before < 0 ? -before : before)
                 : static_cast<T>(key);
  }
}

// Writes one row of one head; value(i) is v[h, q, i].
template <typename Element, typename Value>
void PutRow(const BiasArgs& args, int64_t head, int64_t row, Value value) {
  std::byte* const out = args.out + head * args.out_head_bytes + row * args.out_row_bytes;
  if (args.add_to == nullptr) {
    for (int64_t i = 0; i < args.columns; ++i) Element::Store(value(i), out + i * Element::kBytes);
    return;
  }
  const std::byte* const add_to =
      args.add_to + head * args.add_to_head_bytes + row * args.add_to_row_bytes;
  for (int64_t i = 0; i < args.columns; ++i) {
    Element::Store(Element::Load(add_to + i * Element::kBytes) + value(i),
                   out + i * Element::kBytes);
  }
}

template <typename Element>
void SlopeRows(const BiasArgs& args) {
  using T = typename Element::Math;
  T distances[kBiasTile];
  for (int64_t row = 0; row < args.rows; ++row) {
    Distances(args, args.queries + row, distances);
    for (int64_t head = 0; head < args.heads; ++head) {
      const T slope = static_cast<T>(args.rule->slopes[static_cast<size_t>(head)]);
      PutRow<Element>(args, head, row, [&](int64_t i) { return slope * distances[i]; });
    }
  }
}

template <typename Element, typename TableElement>
void TableRows(const BiasArgs& args) {
  using T = typename Element::Math;
  int64_t indices[kBiasTile];
  for (int64_t row = 0; row < args.rows; ++row) {
    Indices(args, args.queries + row * args.rule->axes, indices);
    for (int64_t head = 0; head < args.heads; ++head) {
      PutRow<Element>(args, head, row, [&](int64_t i) {
        return static_cast<T>(TableElement::Load(args.table + (indices[i] * args.heads + head) *
                                                                  TableElement::kBytes));
      });
    }
  }
}

template <typename Integer>
void IndexRows(const BiasArgs& args) {
  int64_t indices[kBiasTile];
  for (int64_t row = 0; row < args.rows; ++row) {
    Indices(args, args.queries + row * args.rule->axes, indices);
    std::byte* const out = args.out + row * args.out_row_bytes;
    for (int64_t i = 0; i < args.columns; ++i) {
      const auto index = static_cast<Integer>(indices[i]);
      std::memcpy(out + i * static_cast<int64_t>(sizeof index), &index, sizeof index);
    }
  }
}

}  // namespace

void Bias(const BiasArgs& args) {
  if (args.dtype == Dtype::kInt32) return IndexRows<int32_t>(args);
  if (args.dtype == Dtype::kInt64) return IndexRows<int64_t>(args);
  VisitElement(args.dtype, [&]<typename Element>(Element) {
    if (args.rule->has_slopes()) return SlopeRows<Element>(args);
    VisitElement(args.table_dtype, [&]<typename TableElement>(TableElement) {
      TableRows<Element, TableElement>(args);
    });
  });
}

}  // namespace phasor::reference
