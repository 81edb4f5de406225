// SPDX-License-Identifier: Apache-2.0
// Looks up shared memory by name, checks bounds, and detects tensors that overlap.
#include "server/memory/binding.h"

#include <algorithm>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::memory {
namespace {

bool SamePlace(const SharedTensor& a, const SharedTensor& b) {
  return a.on_device == b.on_device && a.name == b.name && a.offset == b.offset;
}

engine::Destination DestinationAt(const SharedTensor& tensor, std::byte* data) {
  engine::Destination to;
  to.data = data;
  to.on_device = tensor.on_device;
  to.region = tensor.name;
  to.offset_bytes = tensor.offset;
  return to;
}

}  // namespace

Transfers& Binding::transfers() {
  if (bound_.transfers == nullptr) bound_.transfers = std::make_unique<Transfers>();
  return *bound_.transfers;
}

absl::StatusOr<Binding::Place> Binding::FindOnHost(const SharedTensor& tensor, int64_t bytes,
                                                   bool write) const {
  const Stores& stores = memory_.stores;
  if (stores.leases == nullptr && !stores.has_regions()) {
    return absl::FailedPreconditionError(
        StrCat(tensor.name_path,
               ": shared memory is off; start the server with --lease-socket or --shared-memory, "
               "or send the bytes inline"));
  }
  Place place;
  if (stores.leases != nullptr) {
    auto leased = stores.leases->Find(tensor.name, tensor.name_path);
    if (!leased.ok() && !stores.has_regions()) return leased.status();
    if (leased.ok()) place.leased = *std::move(leased);
  }
  if (place.leased == nullptr) {
    PHASOR_ASSIGN_OR_RETURN(place.named,
                            stores.regions->Find(tensor.name, memory_.caller, tensor.name_path));
    if (write) PHASOR_RETURN_IF_ERROR(place.named->CheckWritable(tensor.name_path));
    PHASOR_ASSIGN_OR_RETURN(place.data, place.named->At(tensor.offset, bytes, tensor.offset_path));
    return place;
  }
  if (write) {
    PHASOR_ASSIGN_OR_RETURN(place.data,
                            place.leased->Write(tensor.offset, bytes, tensor.offset_path));
    return place;
  }
  PHASOR_ASSIGN_OR_RETURN(const std::byte* const data,
                          place.leased->Read(tensor.offset, bytes, tensor.offset_path));
  place.data = const_cast<std::byte*>(data);
  return place;
}

absl::StatusOr<Binding::Place> Binding::Find(const SharedTensor& tensor, int64_t bytes,
                                             bool write) const {
  bytes = std::max(bytes, tensor.reserved_bytes);
  if (!tensor.on_device) return FindOnHost(tensor, bytes, write);
  if (!memory_.stores.has_devices()) {
    return absl::FailedPreconditionError(StrCat(
        tensor.name_path,
        ": device memory is off; start the server with --shared-memory on a device or send the "
        "bytes inline"));
  }
  Place place;
  PHASOR_ASSIGN_OR_RETURN(
      place.device, memory_.stores.devices->Find(tensor.name, memory_.caller, tensor.name_path));
  PHASOR_ASSIGN_OR_RETURN(place.data,
                          place.device->At(tensor.offset, bytes, write, tensor.offset_path));
  return place;
}

absl::Status Binding::Hold(const SharedTensor& tensor, const Place& place) {
  if (place.leased != nullptr) bound_.held.push_back(place.leased);
  if (place.named != nullptr) transfers().AddRegion(items_, place.named, tensor.path);
  if (place.device == nullptr) return absl::OkStatus();
  bound_.held.push_back(place.device);
  const DevicePort& device = place.device->device();
  if (item_device_ == nullptr) {
    item_device_ = &device;
    on_device_path_ = tensor.path;
  }
  if (item_device_ == &device) return absl::OkStatus();
  return InvalidAt(tensor.name_path, "region '", tensor.name, "' is on ", NameOf(device), ", ",
                   on_device_path_, " on ", NameOf(*item_device_),
                   "; tensors of an item must be on one device");
}

absl::Status Binding::Input(const SharedTensor& tensor, size_t slot, engine::Item* item) {
  engine::Input& input = item->inputs[slot];
  const int64_t bytes = input.slot.bytes;
  PHASOR_ASSIGN_OR_RETURN(const Place place, Find(tensor, bytes, /*write=*/false));
  Add(RangeOf(tensor, place, bytes, /*output=*/false));
  if (input.slot.reading != Reading::kInPart) bound_.shared_bytes += bytes;
  if (place.device != nullptr && !input.slot.on_device) {
    transfers().AddInput(items_, slot, {place.device, tensor.offset, bytes});
    return absl::OkStatus();
  }
  PHASOR_RETURN_IF_ERROR(Hold(tensor, place));
  input.bytes = {{place.data, static_cast<size_t>(bytes)}};
  input.changing = true;
  return absl::OkStatus();
}

absl::StatusOr<Binding::Place> Binding::FindOutput(const SharedTensor& tensor,
                                                   int64_t bytes) const {
  PHASOR_ASSIGN_OR_RETURN(Place place, Find(tensor, bytes, /*write=*/true));
  if (reinterpret_cast<uintptr_t>(place.data) % static_cast<uintptr_t>(SizeOf(tensor.dtype)) != 0) {
    return InvalidAt(tensor.offset_path, tensor.offset, "; must be a multiple of the element's ",
                     SizeOf(tensor.dtype), " bytes, counted from the beginning of the memory");
  }
  return place;
}

absl::Status Binding::Cache(const SharedTensor& tensor, size_t slot, engine::Item* item) {
  engine::Output& output = item->outputs[slot];
  PHASOR_ASSIGN_OR_RETURN(const Place place, FindOutput(tensor, output.slot.bytes));
  PHASOR_RETURN_IF_ERROR(Hold(tensor, place));
  Add(RangeOf(tensor, place, output.slot.bytes, /*output=*/true));
  bound_.shared_bytes += output.slot.like_input_bytes;
  output.place = DestinationAt(tensor, place.data);
  if (place.device != nullptr) output.place.dirty = place.device->dirty_flag();
  if (output.slot.moves_within) in_place_.emplace_back(items_, output.place.dirty);
  return absl::OkStatus();
}

absl::Status Binding::Output(const SharedTensor& tensor, const SharedTensor* input, size_t slot,
                             engine::Item* item) {
  engine::Output& output = item->outputs[slot];
  const bool strided = !tensor.strides.empty();
  if (strided && (input == nullptr || tensor.strides != input->strides)) {
    return Invalid(tensor.path,
                   ".strides: other strides than the input's; must be empty or the same");
  }
  const bool in_place = input != nullptr && SamePlace(tensor, *input);
  if (in_place && tensor.strides != input->strides) {
    return Invalid(tensor.path,
                   ".strides: other strides than the input's, whose place it is; must be the same");
  }
  const int64_t bytes = strided ? output.slot.like_input_bytes : output.slot.bytes;
  PHASOR_ASSIGN_OR_RETURN(const Place place, FindOutput(tensor, bytes));
  const bool copied = place.device != nullptr && !output.slot.on_device;
  if (copied && strided) {  // the bytes between its elements would be written too
    return Invalid(tensor.path, ".strides: set for what is copied to the device; must be empty");
  }
  output.place = DestinationAt(tensor, copied ? nullptr : place.data);
  output.place.strided = strided;
  output.place.copied = copied;
  if (copied) {
    transfers().AddOutput(items_, slot, {place.device, tensor.offset, bytes});
  } else {
    PHASOR_RETURN_IF_ERROR(Hold(tensor, place));
    if (place.device != nullptr) output.place.dirty = place.device->dirty_flag();
  }
  bound_.shared_bytes += bytes;
  Range range = RangeOf(tensor, place, bytes, /*output=*/true);
  if (!in_place) {
    Add(std::move(range));
    return absl::OkStatus();
  }
  in_place_.emplace_back(items_, output.place.dirty);
  // The range of the input is in the list already. The output is the same bytes.
  const auto own = std::find_if(ranges_.begin() + static_cast<std::ptrdiff_t>(item_begin_),
                                ranges_.end(), [&](const Range& other) {
                                  return !other.output && other.span.begin == range.span.begin &&
                                         other.span.end == range.span.end;
                                });
  if (own != ranges_.end()) {
    own->output = true;
  } else {
    Add(std::move(range));
  }
  return absl::OkStatus();
}

Binding::Range Binding::RangeOf(const SharedTensor& tensor, const Place& place, int64_t bytes,
                                bool output) const {
  const auto begin = reinterpret_cast<int64_t>(place.data);
  return {SpanOf(tensor.dtype, tensor.shape, tensor.strides, begin, bytes), output, items_,
          tensor.path};
}

void Binding::Add(Range range) {
  if (range.span.begin < range.span.end) ranges_.push_back(std::move(range));
}

absl::Status Binding::Overlap(const Range& a, const Range& b) {
  return InvalidAt(b.path, "overlaps ", a.path,
                   "; an output must overlap nothing, or be exactly its own input");
}

absl::Status Binding::EndItem(absl::Status status) {
  if (status.ok()) status = CheckItem();
  if (!status.ok()) ranges_.resize(item_begin_);
  item_begin_ = ranges_.size();
  item_device_ = nullptr;
  ++items_;
  return status;
}

absl::Status Binding::CheckItem() const {
  for (size_t i = item_begin_; i < ranges_.size(); ++i) {
    for (size_t j = item_begin_; j < i; ++j) {
      const Range& a = ranges_[j];
      const Range& b = ranges_[i];
      if (!(a.output || b.output)) continue;
      if (!Apart(a.span, b.span)) return Overlap(a, b);
    }
  }
  return absl::OkStatus();
}

absl::Status Binding::CheckItems() {
  // The range with the largest end, and the one with the largest end among those of other items.
  struct Farthest {
    const Range* first = nullptr;
    const Range* second = nullptr;
    const Range* OfOthers(const Range& range) const {
      return first != nullptr && first->item == range.item ? second : first;
    }
    void Add(const Range& range) {
      if (first == nullptr || first->span.end < range.span.end) {
        if (first != nullptr && first->item != range.item) second = first;
        first = &range;
      } else if (first->item != range.item &&
                 (second == nullptr || second->span.end < range.span.end)) {
        second = &range;
      }
    }
  };
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.span.begin < b.span.begin; });
  Farthest inputs, outputs;  // of earlier ranges
  for (const Range& range : ranges_) {
    for (const Range* before :
         {outputs.OfOthers(range), range.output ? inputs.OfOthers(range) : nullptr}) {
      if (before != nullptr && before->span.end > range.span.begin) return Overlap(*before, range);
    }
    (range.output ? outputs : inputs).Add(range);
  }
  return absl::OkStatus();
}

absl::StatusOr<Bound> Binding::Finish() {
  PHASOR_RETURN_IF_ERROR(CheckItems());
  if (bound_.transfers != nullptr) {
    for (const auto& [item, dirty] : in_place_) bound_.transfers->NoteInPlace(item, dirty);
  }
  return std::move(bound_);
}

}  // namespace phasor::memory
