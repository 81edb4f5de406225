// SPDX-License-Identifier: Apache-2.0
// Opens, copies and closes allocations of other processes, and keeps the list of their addresses.
#include "kernels/cuda/device_memory.h"

#include <iterator>

#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"

namespace phasor::cuda {
namespace {

absl::Status Gone() {
  return absl::AbortedError("cuda: the device was lost, and what was in its memory with it");
}

absl::Status TryAgain(const absl::Status& error) {
  return absl::UnavailableError(StrCat(error.message(), "; try again"));
}

}  // namespace

// One open allocation. Its destructor closes it, if its context still exists. Threads: any.
class DeviceMemory::Allocation final : public DeviceAllocation {
 public:
  Allocation(DeviceMemory* memory, const IpcMapping& mapping, int64_t context)
      : memory_(*memory), mapping_(mapping), context_(context) {}
  ~Allocation() override {
    memory_.Remove(this);
    const DeviceLife::Use use = memory_.life_.EnterIfWorking();
    if (use && context_ == memory_.life_.context()) memory_.driver_.CloseIpc(mapping_);
  }

  std::byte* data() const override { return mapping_.opened; }
  int64_t bytes() const override { return mapping_.bytes; }
  bool usable() const override {
    return memory_.life_.working() && context_ == memory_.life_.context();
  }
  absl::Status Read(int64_t offset, int64_t bytes, std::byte* out) const override {
    return memory_.Copy(context_, data() + offset, bytes, out, nullptr);
  }
  absl::Status Write(int64_t offset, int64_t bytes, const std::byte* in) const override {
    return memory_.Copy(context_, data() + offset, bytes, nullptr, in);
  }

  bool Overlaps(const Allocation& other) const {
    return data() < other.data() + other.bytes() && other.data() < data() + bytes();
  }
  int64_t context() const { return context_; }

 private:
  DeviceMemory& memory_;
  const IpcMapping mapping_;
  const int64_t context_;
};

absl::StatusOr<std::shared_ptr<const DeviceAllocation>> DeviceMemory::Open(
    const IpcHandle& handle) {
  const DeviceLife::Use use = life_.EnterIfWorking();
  if (!use) return absl::UnavailableError("cuda: the device is lost; try again later");
  const std::lock_guard<std::mutex> lock(open_mutex_);
  std::erase_if(open_, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = open_.find(handle); found != open_.end()) {
    const std::shared_ptr<const Allocation> known = found->second.lock();
    if (known != nullptr && known->usable()) return known;
  }
  return OpenNew(handle);
}

absl::StatusOr<std::shared_ptr<const DeviceAllocation>> DeviceMemory::OpenNew(
    const IpcHandle& handle) {
  const auto mapping = driver_.OpenIpc(handle);
  if (!mapping.ok()) {
    life_.Note(mapping.status());
    return absl::IsInvalidArgument(mapping.status()) ? mapping.status()
                                                     : TryAgain(mapping.status());
  }
  // From here on the allocation closes the mapping.
  const auto allocation = std::make_shared<const Allocation>(this, *mapping, life_.context());
  if (!Add(allocation.get())) {
    return absl::UnavailableError(
        "cuda: calls still hold memory of before the device was lost; try again");
  }
  open_[handle] = allocation;
  return allocation;
}

bool DeviceMemory::Add(const Allocation* allocation) {
  const std::unique_lock<std::shared_mutex> lock(ranges_mutex_);
  for (const auto& [begin, other] : ranges_) {
    if (other->context() != allocation->context() && other->Overlaps(*allocation)) return false;
  }
  ranges_.emplace(allocation->data(), allocation);
  return true;
}

void DeviceMemory::Remove(const Allocation* allocation) {
  const std::unique_lock<std::shared_mutex> lock(ranges_mutex_);
  std::erase_if(ranges_, [&](const auto& entry) { return entry.second == allocation; });
}

Place DeviceMemory::PlaceOf(const std::byte* address) const {
  const std::shared_lock<std::shared_mutex> lock(ranges_mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return Place::kHost;
  const Allocation& before = *std::prev(next)->second;
  if (address >= before.data() + before.bytes()) return Place::kHost;
  return before.usable() ? Place::kDevice : Place::kGone;
}

bool DeviceMemory::Holds(const std::byte* begin, int64_t bytes) const {
  const std::shared_lock<std::shared_mutex> lock(ranges_mutex_);
  // Of those that begin before the end, the last one reaches farthest.
  const auto next = ranges_.lower_bound(begin + bytes);
  if (next == ranges_.begin()) return false;
  const Allocation& last = *std::prev(next)->second;
  return begin < last.data() + last.bytes();
}

absl::Status DeviceMemory::Read(const std::byte* from, int64_t bytes, std::byte* out) const {
  int64_t context = -1;
  std::byte* at = nullptr;
  {
    const std::shared_lock<std::shared_mutex> lock(ranges_mutex_);
    const auto next = ranges_.upper_bound(from);
    if (next == ranges_.begin()) return absl::InternalError("cuda: no open memory at an address");
    const Allocation& holds = *std::prev(next)->second;
    context = holds.context();
    at = holds.data() + (from - holds.data());
  }
  return Copy(context, at, bytes, out, nullptr);
}

absl::Status DeviceMemory::Copy(int64_t context, std::byte* at, int64_t bytes, std::byte* out,
                                const std::byte* in) const {
  const DeviceLife::Use use = life_.EnterIfWorking();
  if (!use || context != life_.context()) return Gone();
  if (bytes == 0) return absl::OkStatus();
  const auto copy = [&]() -> absl::Status {
    PHASOR_ASSIGN_OR_RETURN(const Stream stream, driver_.CreateStream());
    absl::Status queued = out != nullptr ? driver_.CopyToHost(out, at, bytes, stream)
                                         : driver_.CopyToDevice(at, in, bytes, stream);
    const absl::Status done = driver_.Synchronize(stream);
    driver_.DestroyStream(stream);
    return queued.ok() ? done : queued;
  };
  const absl::Status copied = copy();
  life_.Note(copied);
  if (copied.ok()) return copied;
  return absl::IsUnavailable(copied) ? Gone() : TryAgain(copied);
}

}  // namespace phasor::cuda
