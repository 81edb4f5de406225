// SPDX-License-Identifier: Apache-2.0
// The named layouts of key caches, and their distances in bytes. A layout is data: the order of its
// dimensions (docs/move-keys.md lists them).
// Threads: pure functions.
#ifndef PHASOR_KERNELS_REQUEST_KEY_LAYOUTS_H_
#define PHASOR_KERNELS_REQUEST_KEY_LAYOUTS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ops/key_form.h"

namespace phasor {

struct KeyLayout;

// Dimensions, outermost first: B pages, N slots of a page, H heads, D lanes, L layers, 2 keys and
// values, P lanes of a key and then of a value, S the same each followed by an f32 scale, X and x
// lanes in groups of 16 bytes, W a row of row_bytes. Without L, several layers follow one another.
struct NamedKeyLayout {
  std::string_view name;
  std::string_view order;
  std::string_view values = {};  // order of the values if it differs; "-": not known
  // Of W. In bytes, or in elements if row_in_elements.
  int64_t row = 0;
  int64_t lanes_offset = 0;
  bool row_in_elements = false;
  int64_t page_row = 0;    // bytes of a page for each slot, if a page has more than its rows
  int64_t page_round = 1;  // pages are multiples of so many bytes
  // Of the lanes that rotate, where the rest of a row is stored in a code of its own.
  std::optional<KeyCode> code = {};
  std::string_view users = {};
};

absl::Span<const NamedKeyLayout> NamedKeyLayouts();

// The layout of a name; an empty name is dense keys. INVALID_ARGUMENT: no such name.
absl::StatusOr<NamedKeyLayout> FindKeyLayout(std::string_view name, std::string_view path);

// A layout with all distances.
struct ResolvedKeyLayout {
  KeyForm keys;
  bool latent = false;      // rows of MLA: content, and lanes that all heads share
  int64_t keys_offset = 0;  // of the first lane of layer 0 in the tensor
  int64_t layer_bytes = 0;  // from one layer to the next
  std::optional<KeyForm> values =
      {};  // not set: the tensor has no values, or their place is unknown
  int64_t values_offset = 0;
};

// INVALID_ARGUMENT: no such name, a size outside its range, a distance that lets rows overlap, or a
// code that the layout cannot have.
absl::StatusOr<ResolvedKeyLayout> ResolveKeyLayout(const KeyLayout& layout, std::string_view path);

}  // namespace phasor

#endif  // PHASOR_KERNELS_REQUEST_KEY_LAYOUTS_H_
