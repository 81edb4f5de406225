// SPDX-License-Identifier: Apache-2.0
// See region_copies.h.
#include "server/memory/region_copies.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::memory {

RegionCopies::~RegionCopies() {
  for (const Copy& copy : copies_) {
    munmap(copy.begin, static_cast<size_t>(copy.region->place().bytes));
  }
}

absl::StatusOr<size_t> RegionCopies::Find(std::shared_ptr<const memory::Region> region) {
  for (size_t i = 0; i < copies_.size(); ++i) {
    if (copies_[i].region == region) return i;
  }
  const auto bytes = static_cast<size_t>(region->place().bytes);
  void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    return absl::UnavailableError(
        StrCat("server: no addresses for a region of ", bytes, " bytes, try again"));
  }
  madvise(begin, bytes, MADV_NOHUGEPAGE);  // a small tensor must not take 2 MiB
  copies_.push_back({std::move(region), static_cast<std::byte*>(begin)});
  return copies_.size() - 1;
}

absl::StatusOr<std::byte*> RegionCopies::Add(std::shared_ptr<const memory::Region> region,
                                             int64_t offset, int64_t bytes, size_t item,
                                             const std::string& path,
                                             std::vector<Transfer>* transfers) {
  PHASOR_ASSIGN_OR_RETURN(const size_t copy, Find(std::move(region)));
  transfers->push_back({copy, offset, bytes, item, path});
  return copies_[copy].begin + offset;
}

absl::StatusOr<const std::byte*> RegionCopies::Input(std::shared_ptr<const memory::Region> region,
                                                     int64_t offset, int64_t bytes, size_t item,
                                                     const std::string& path) {
  bytes_ += bytes;
  return Add(std::move(region), offset, bytes, item, path, &inputs_);
}

absl::StatusOr<std::byte*> RegionCopies::Output(std::shared_ptr<const memory::Region> region,
                                                int64_t offset, int64_t bytes, size_t item,
                                                bool in_place, const std::string& path) {
  if (in_place) {
    NoteInPlace(item);
  } else {
    bytes_ += bytes;
  }
  return Add(std::move(region), offset, bytes, item, path, &outputs_);
}

void RegionCopies::Fetch(absl::Span<engine::Item> items) const {
  for (const Transfer& input : inputs_) {
    engine::Item& item = items[input.item];
    if (!item.status.ok()) continue;
    const Copy& copy = copies_[input.copy];
    absl::Status status =
        copy.region->Read(input.offset, input.bytes, copy.begin + input.offset, input.path);
    if (!status.ok()) item = engine::Item(std::move(status));
  }
}

void RegionCopies::Store(absl::Span<engine::ItemResult> results) const {
  for (const Transfer& output : outputs_) {
    engine::ItemResult& result = results[output.item];
    if (!result.status.ok()) continue;
    const Copy& copy = copies_[output.copy];
    result.status =
        copy.region->Write(output.offset, output.bytes, copy.begin + output.offset, output.path);
    if (result.status.ok()) continue;
    result.outputs.clear();
    if (std::find(in_place_.begin(), in_place_.end(), output.item) == in_place_.end()) continue;
    result.status = absl::AbortedError(
        StrCat("server: failed in the middle of an in-place call, what it was to change may hold "
               "neither input nor output: ",
               result.status.message()));
  }
}

}  // namespace phasor::memory
