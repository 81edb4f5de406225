// SPDX-License-Identifier: Apache-2.0
// See shared_tensors.h.
#include "server/api/shared_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "proto/enums.h"

namespace phasor::rpc {
namespace {

template <typename Repeated>
bool Same(const Repeated& a, const Repeated& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool SameRegion(const v1::TensorSpec& a, const v1::TensorSpec& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.region() == y.region() && x.offset_bytes() == y.offset_bytes();
  };
  if (a.has_device()) return b.has_device() && same(a.device(), b.device());
  return a.has_region() && b.has_region() && same(a.region(), b.region());
}

}  // namespace

memory::RegionCopies& SharedTensors::copies() {
  if (copies_ == nullptr) copies_ = std::make_unique<memory::RegionCopies>();
  return *copies_;
}

std::unique_ptr<memory::RegionCopies> SharedTensors::TakeCopies() {
  if (copies_ != nullptr) {
    for (const size_t item : in_place_) copies_->NoteInPlace(item);
  }
  return std::move(copies_);
}

absl::StatusOr<SharedTensors::Memory> SharedTensors::Find(const v1::RegionRef& region,
                                                          const std::string& path) const {
  const bool has_names = sources_.regions.enabled();
  if (sources_.leases == nullptr && !has_names) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     ".region: shared memory is off, start the server with --lease-socket or "
                     "--shared-memory, or send the bytes inline"));
  }
  const std::string name_path = absl::StrCat(path, ".region.region");
  Memory memory;
  if (sources_.leases != nullptr) {
    auto leased = sources_.leases->Find(region.region(), name_path);
    if (!leased.ok() && !has_names) return leased.status();
    if (leased.ok()) memory.leased = *std::move(leased);
  }
  if (memory.leased != nullptr) return memory;
  PHASOR_ASSIGN_OR_RETURN(memory.named, sources_.regions.Find(region.region(), name_path));
  return memory;
}

absl::StatusOr<const std::byte*> SharedTensors::Read(const v1::RegionRef& region, int64_t bytes,
                                                     const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(Memory memory, Find(region, path));
  const std::string range_path = absl::StrCat(path, ".region.offset_bytes");
  if (memory.leased != nullptr) {
    held_.push_back(memory.leased);
    return memory.leased->Read(region.offset_bytes(), bytes, range_path);
  }
  PHASOR_RETURN_IF_ERROR(memory.named->CheckRange(region.offset_bytes(), bytes, range_path));
  return copies().Input(std::move(memory.named), region.offset_bytes(), bytes, items_, path);
}

absl::StatusOr<engine::Destination> SharedTensors::Write(const v1::RegionRef& region, int64_t bytes,
                                                         bool in_place, const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(Memory memory, Find(region, path));
  const std::string range_path = absl::StrCat(path, ".region.offset_bytes");
  engine::Destination place{.copied = memory.named != nullptr,
                            .region = region.region(),
                            .offset_bytes = region.offset_bytes()};
  if (memory.leased != nullptr) {
    held_.push_back(memory.leased);
    PHASOR_ASSIGN_OR_RETURN(place.data,
                            memory.leased->Write(region.offset_bytes(), bytes, range_path));
    return place;
  }
  PHASOR_RETURN_IF_ERROR(memory.named->CheckRange(region.offset_bytes(), bytes, range_path));
  PHASOR_RETURN_IF_ERROR(memory.named->CheckWritable(absl::StrCat(path, ".region.region")));
  PHASOR_ASSIGN_OR_RETURN(
      place.data, copies().Output(std::move(memory.named), region.offset_bytes(), bytes, items_,
                                  in_place, path));
  return place;
}

absl::StatusOr<engine::Destination> SharedTensors::FindOnDevice(const v1::DeviceRef& device,
                                                                int64_t bytes, bool write,
                                                                const std::string& path) {
  if (!sources_.devices.enabled()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        ".device: device memory is off, start the server with --shared-memory on a device or send "
        "the bytes inline"));
  }
  PHASOR_ASSIGN_OR_RETURN(
      auto region, sources_.devices.Find(device.region(), absl::StrCat(path, ".device.region")));
  engine::Destination place{
      .on_device = true, .region = device.region(), .offset_bytes = device.offset_bytes()};
  PHASOR_ASSIGN_OR_RETURN(place.data, region->At(device.offset_bytes(), bytes, write,
                                                 absl::StrCat(path, ".device.offset_bytes")));
  place.dirty = region->dirty_flag();
  held_.push_back(std::move(region));
  return place;
}

absl::StatusOr<absl::Span<const std::byte>> SharedTensors::Input(const v1::TensorSpec& tensor,
                                                                 int64_t bytes,
                                                                 const std::string& path) {
  const std::byte* begin = nullptr;
  if (tensor.has_device()) {
    PHASOR_ASSIGN_OR_RETURN(const engine::Destination place,
                            FindOnDevice(tensor.device(), bytes, /*write=*/false, path));
    begin = place.data;
  } else {
    PHASOR_ASSIGN_OR_RETURN(begin, Read(tensor.region(), bytes, path));
  }
  Add(begin, bytes, false, tensor, path);
  return absl::Span<const std::byte>(begin, static_cast<size_t>(bytes));
}

absl::StatusOr<engine::Destination> SharedTensors::FindOutput(const v1::TensorSpec& tensor,
                                                              int64_t bytes, bool in_place,
                                                              const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(const engine::Destination place,
                          tensor.has_device()
                              ? FindOnDevice(tensor.device(), bytes, /*write=*/true, path)
                              : Write(tensor.region(), bytes, in_place, path));
  if (const auto dtype = EnumFromWire<Dtype>(tensor.dtype(), path);
      dtype.ok() && place.offset_bytes % SizeOf(*dtype) != 0) {
    const char* const source = place.on_device ? ".device" : ".region";
    return InvalidAt(absl::StrCat(path, source, ".offset_bytes"), place.offset_bytes,
                     ", must be a multiple of the element's ", SizeOf(*dtype));
  }
  return place;
}

absl::StatusOr<engine::Destination> SharedTensors::Cache(const v1::TensorSpec& cache, int64_t bytes,
                                                         int64_t written, const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(const engine::Destination place,
                          FindOutput(cache, bytes, /*in_place=*/false, path));
  if (place.copied) {  // all of it would be written back, over what other calls write meanwhile
    return absl::UnimplementedError(absl::StrCat(
        path, ".region.region: a named region, caches must be in leased memory or inline"));
  }
  Add(place.data, bytes, true, cache, path);
  bytes_ += written - bytes;
  return place;
}

absl::StatusOr<engine::Destination> SharedTensors::Output(const v1::TensorSpec& wanted,
                                                          const v1::TensorSpec& output,
                                                          const Computed& computed,
                                                          const std::string& path) {
  if (!wanted.has_region() && !wanted.has_device()) {
    return Invalid(path, ".region: not set, must be given: results without destination are inline");
  }
  if (wanted.dtype() != output.dtype() || !Same(wanted.shape(), output.shape())) {
    return Invalid(path, ": must have the dtype and shape of the result, ",
                   v1::Dtype_Name(output.dtype()), " and ", output.shape_size(), " dimensions");
  }
  const bool strided = wanted.strides_size() > 0;
  const v1::TensorSpec* const input = computed.input;
  if (strided && (input == nullptr || !Same(wanted.strides(), input->strides()))) {
    return Invalid(path, ".strides: must be empty or those of the input");
  }
  const bool in_place = input != nullptr && SameRegion(wanted, *input);
  if (in_place && !Same(wanted.strides(), input->strides())) {
    return Invalid(path, ".strides: must be those of the input, whose place it is");
  }
  const int64_t bytes = strided ? computed.strided_bytes : computed.output_bytes;
  PHASOR_ASSIGN_OR_RETURN(engine::Destination place, FindOutput(wanted, bytes, in_place, path));
  if (place.copied && strided) {  // what is between its elements would be written too
    return Invalid(path, ".strides: must be empty in a named region");
  }
  place.strided = strided;
  if (in_place) in_place_.push_back(items_);
  const std::byte* const begin = place.data;
  // In place, the input's range is there already, and the output is the same bytes.
  const auto same = [&](const Range& range) {
    return !range.output && range.begin == begin && range.end == begin + bytes;
  };
  const auto found = in_place
                         ? std::find_if(ranges_.begin() + static_cast<std::ptrdiff_t>(item_begin_),
                                        ranges_.end(), same)
                         : ranges_.end();
  if (found != ranges_.end()) {
    found->output = true;
    bytes_ += bytes;
  } else {
    Add(begin, bytes, true, wanted, path);
  }
  return place;
}

void SharedTensors::Add(const std::byte* begin, int64_t bytes, bool output,
                        const v1::TensorSpec& tensor, const std::string& path) {
  bytes_ += bytes;
  if (bytes == 0) return;
  Range range{begin, begin + bytes, output, items_, path, 1, {}};
  // The type and the strides were checked when the item was prepared.
  if (const auto dtype = EnumFromWire<Dtype>(tensor.dtype(), path); dtype.ok()) {
    range.element_bytes = SizeOf(*dtype);
  }
  for (int i = 0; i < tensor.strides_size() && i < tensor.shape_size(); ++i) {
    if (tensor.shape(i) <= 1) continue;  // its stride is never used, and may be any number
    range.steps.emplace_back(tensor.shape(i), tensor.strides(i) * range.element_bytes);
  }
  ranges_.push_back(std::move(range));
}

// Whether the two take turns in rows of one length: every element of `a` is in one part of its row,
// and every element of `b` in another.
bool SharedTensors::Interleave(const Range& a, const Range& b) {
  // Bytes of a row from the first element to the last, for rows that are `row` bytes apart.
  const auto width = [](const Range& range, int64_t row) {
    int64_t bytes = range.element_bytes;
    for (const auto& [extent, step] : range.steps) {
      if (step % row != 0) bytes += (extent - 1) * step;
    }
    return bytes;
  };
  for (const auto& [extent, row] : a.steps) {
    if (row < 1 || b.steps.empty()) continue;
    const int64_t a_width = width(a, row);
    const int64_t b_width = width(b, row);
    const int64_t between = ((b.begin - a.begin) % row + row) % row;  // in the row, from a to b
    if (between >= a_width && b_width <= row - between) return true;
  }
  return false;
}

absl::Status SharedTensors::Overlap(const Range& a, const Range& b) {
  return InvalidAt(b.path, "overlaps ", a.path,
                   ", an output must overlap nothing, or be exactly its own input");
}

absl::Status SharedTensors::EndItem(absl::Status status) {
  if (status.ok()) status = CheckItem();
  if (!status.ok()) ranges_.resize(item_begin_);
  item_begin_ = ranges_.size();
  ++items_;
  return status;
}

absl::Status SharedTensors::CheckItem() const {
  for (size_t i = item_begin_; i < ranges_.size(); ++i) {
    for (size_t j = item_begin_; j < i; ++j) {
      const Range& a = ranges_[j];
      const Range& b = ranges_[i];
      const bool apart = a.end <= b.begin || b.end <= a.begin || !(a.output || b.output);
      if (!apart && !Interleave(a, b)) return Overlap(a, b);
    }
  }
  return absl::OkStatus();
}

absl::Status SharedTensors::CheckItems() {
  // The range that ends last, and the one that does among those of other items.
  struct Farthest {
    const Range* first = nullptr;
    const Range* second = nullptr;
    const Range* OfOthers(const Range& range) const {
      return first != nullptr && first->item == range.item ? second : first;
    }
    void Add(const Range& range) {
      if (first == nullptr || first->end < range.end) {
        if (first != nullptr && first->item != range.item) second = first;
        first = &range;
      } else if (first->item != range.item && (second == nullptr || second->end < range.end)) {
        second = &range;
      }
    }
  };
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  Farthest inputs, outputs;  // of the ranges before
  for (const Range& range : ranges_) {
    for (const Range* before :
         {outputs.OfOthers(range), range.output ? inputs.OfOthers(range) : nullptr}) {
      if (before != nullptr && before->end > range.begin) return Overlap(*before, range);
    }
    (range.output ? outputs : inputs).Add(range);
  }
  return absl::OkStatus();
}

}  // namespace phasor::rpc
