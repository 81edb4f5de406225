// SPDX-License-Identifier: Apache-2.0
// Reads inputs before the computation and writes outputs after it. Copies take no longer than
// memory does: a client cannot make the thread that computes wait.
#include "server/memory/transfers.h"

#include <utility>

#include "kernels/base/text.h"

namespace phasor::memory {

void Transfers::AddInput(size_t item, size_t slot, DevicePart part) {
  bytes_ += part.bytes;
  inputs_.push_back({item, slot, std::move(part)});
}

void Transfers::AddOutput(size_t item, size_t slot, DevicePart part) {
  bytes_ += part.bytes;
  outputs_.push_back({item, slot, std::move(part)});
}

void Transfers::AddRegion(size_t item, std::shared_ptr<const Region> region, std::string path) {
  regions_.push_back({item, std::move(region), std::move(path)});
}

absl::Status Transfers::Fetch(engine::BufferPool& pool, absl::Span<engine::Item> items) {
  for (const auto& [i, region, path] : regions_) {
    if (!items[i].status.ok()) continue;
    if (absl::Status whole = region->CheckWhole(path); !whole.ok()) {
      items[i] = engine::Item(std::move(whole));
    }
  }
  for (const auto& [i, slot, part] : inputs_) {
    engine::Item& item = items[i];
    if (!item.status.ok() || part.bytes == 0) continue;
    engine::BufferRef copy = pool.Get(part.bytes);
    if (copy == nullptr) {
      return absl::UnavailableError(
          StrCat("server: no memory for ", part.bytes, " bytes; try again"));
    }
    absl::Status status = part.region->Read(part.offset, part.bytes, copy->data());
    if (!status.ok()) {
      item = engine::Item(std::move(status));
      continue;
    }
    item.inputs[slot].bytes = {{copy->data(), static_cast<size_t>(part.bytes)}};
    copies_.push_back(std::move(copy));
  }
  return absl::OkStatus();
}

void Transfers::Store(engine::Result& result) const {
  for (const auto& [item, slot, part] : outputs_) {
    engine::ItemResult& of_item = result.items[item];
    if (!of_item.status.ok()) continue;
    const std::byte* const data = result.buffer->data() + of_item.outputs[slot].offset;
    Fail(item, part.region->Write(part.offset, part.bytes, data), result);
  }
  for (const auto& [item, region, path] : regions_) {
    if (result.items[item].status.ok()) Fail(item, region->CheckWhole(path), result);
  }
}

void Transfers::Fail(size_t item, const absl::Status& why, engine::Result& result) const {
  if (why.ok()) return;
  engine::ItemResult& failed = result.items[item];
  failed.outputs.clear();
  failed.status = why;
  bool changed = false;
  for (const InPlace& in_place : in_place_) {
    if (in_place.item != item) continue;
    changed = true;
    if (in_place.dirty != nullptr) in_place.dirty->store(true, std::memory_order_relaxed);
  }
  if (!changed) return;
  failed.status =
      absl::AbortedError(StrCat("server: failed in the middle of an in-place call; start again "
                                "from the original, because what it was to change may hold "
                                "neither input nor output: ",
                                why.message()));
}

}  // namespace phasor::memory
