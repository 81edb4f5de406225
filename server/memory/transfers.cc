// SPDX-License-Identifier: Apache-2.0
// Reads inputs before the computation and writes outputs after it. Copies take no longer than
// memory does: a client cannot make the thread that computes wait.
#include "server/memory/transfers.h"

#include <algorithm>
#include <utility>

#include "kernels/base/text.h"
#include "kernels/request/written_bytes.h"

namespace phasor::memory {
namespace {

absl::Status Read(const RegionPart& part, std::byte* out) {
  if (part.device != nullptr) return part.device->Read(part.offset, part.bytes, out);
  return part.host->Read(part.offset, part.bytes, out, part.path);
}

absl::Status Write(const RegionPart& part, const std::byte* in) {
  if (part.device != nullptr) return part.device->Write(part.offset, part.bytes, in);
  return part.host->Write(part.offset, part.bytes, in, part.path);
}

// Writes the bytes of pool `pool` that the move wrote. Others may be writing the rest of it.
absl::Status WriteMoved(const PreparedMove& move, int pool, RegionPart part, const std::byte* in) {
  const int64_t begin = part.offset;
  absl::Status status;
  ForEachWritten(move, static_cast<size_t>(pool), [&](int64_t first, int64_t bytes) {
    if (!status.ok()) return;
    part.offset = begin + first;
    part.bytes = bytes;
    status = Write(part, in + first);
  });
  return status;
}

}  // namespace

void Transfers::AddInput(size_t item, size_t slot, RegionPart part) {
  bytes_ += part.bytes;
  inputs_.push_back({item, slot, std::move(part)});
}

void Transfers::AddOutput(size_t item, size_t slot, RegionPart part) {
  bytes_ += part.bytes;
  outputs_.push_back({item, slot, std::move(part)});
}

absl::Status Transfers::Fetch(engine::BufferPool& pool, absl::Span<engine::Item> items) {
  for (const auto& [i, slot, part] : inputs_) {
    engine::Item& item = items[i];
    if (!item.status.ok() || part.bytes == 0) continue;
    engine::BufferRef copy = pool.Get(part.bytes);
    if (copy == nullptr) {
      return absl::UnavailableError(
          StrCat("server: no memory for ", part.bytes, " bytes; try again"));
    }
    if (absl::Status status = Read(part, copy->data()); !status.ok()) {
      item = engine::Item(std::move(status));
      continue;
    }
    item.inputs[slot].bytes = {{copy->data(), static_cast<size_t>(part.bytes)}};
    copies_.push_back(std::move(copy));
  }
  return absl::OkStatus();
}

void Transfers::Store(absl::Span<const engine::Item> items, engine::Result& result) const {
  for (const auto& [item, slot, part] : outputs_) {
    engine::ItemResult& of_item = result.items[item];
    if (!of_item.status.ok()) continue;
    const std::byte* const data = result.buffer->data() + of_item.outputs[slot].offset;
    const auto* const move = std::get_if<PreparedMove>(&items[item].prepared);
    of_item.status = move == nullptr
                         ? Write(part, data)
                         : WriteMoved(*move, items[item].outputs[slot].slot.index, part, data);
    if (of_item.status.ok()) continue;
    of_item.outputs.clear();
    if (std::find(in_place_.begin(), in_place_.end(), item) == in_place_.end()) continue;
    of_item.status =
        absl::AbortedError(StrCat("server: failed in the middle of an in-place call; start again "
                                  "from the original, because what it was to change may hold "
                                  "neither input nor output: ",
                                  of_item.status.message()));
  }
}

}  // namespace phasor::memory
