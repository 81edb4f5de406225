// SPDX-License-Identifier: Apache-2.0
// Received bytes in pieces; which items are slow.
#include "server/engine/call.h"

#include <cstring>

namespace phasor::engine {

int64_t SegmentBytes(const Segments& segments) {
  int64_t bytes = 0;
  for (const absl::Span<const std::byte> segment : segments) {
    bytes += static_cast<int64_t>(segment.size());
  }
  return bytes;
}

void Gather(const Segments& segments, std::byte* out) {
  for (const absl::Span<const std::byte> segment : segments) {
    if (segment.empty()) continue;
    std::memcpy(out, segment.data(), segment.size());
    out += segment.size();
  }
}

bool IsSlow(const Item& item) {
  const Plan* plan = nullptr;
  if (const auto* encode = std::get_if<EncodeItem>(&item)) plan = encode->prepared.plan.get();
  if (const auto* rope = std::get_if<RopeItem>(&item)) plan = rope->prepared.plan.get();
  return plan != nullptr && plan->parity.has_value();
}

}  // namespace phasor::engine
