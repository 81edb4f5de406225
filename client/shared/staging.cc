// SPDX-License-Identifier: Apache-2.0
// Copies large tensors of a call to shared memory and its results back. Never holds the lock while
// it asks the server for memory, so no call waits for another.
#include "client/shared/staging.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "client/common/calls.h"
#include "kernels/base/steady_time.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor::client_internal {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kBlockUnit = int64_t{1} << 20;
constexpr absl::Duration kAskAgain = absl::Seconds(5);  // for a server that takes no leases

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

int64_t DenseBytesOf(const TensorDesc& tensor) {
  return ElementCount(tensor) * SizeOf(tensor.dtype);
}

// Whether the result may overwrite the copy of its input.
bool KeepsType(const RopeTensor& tensor) {
  return tensor.input.desc.dtype == tensor.output.desc.dtype;
}

MutableTensorView DenseView(const TensorDesc& tensor, std::byte* data) {
  return {TensorDesc{tensor.dtype, tensor.shape, {}}, data, DenseBytesOf(tensor)};
}

}  // namespace

std::unique_ptr<StagingPool::Block> StagingPool::Take(int64_t bytes, const AskServer& ask,
                                                      absl::Time deadline) {
  const std::shared_ptr<LeaseClient> leases = leases_->Get();
  if (leases == nullptr || !leases->alive()) {
    DropFree();
    Ask(ask);
    return nullptr;
  }
  if (bytes > max_bytes_) return nullptr;
  const int64_t size = std::min(RoundUp(bytes, kBlockUnit), max_bytes_);
  Free dropped;  // freed after the lock is released
  {
    std::lock_guard lock(mutex_);
    if (of_ != leases) {  // a restarted server does not know the old blocks
      dropped = TakeFree();
      of_ = leases;
      lease_after_ = absl::InfinitePast();
    }
    // Do not take a block that is much too large: it may serve a larger call.
    if (const auto fits = free_.lower_bound(bytes);
        fits != free_.end() && fits->first <= 2 * size) {
      auto node = free_.extract(fits);
      return std::make_unique<Block>(shared_from_this(), std::move(node.mapped()), leases.get());
    }
    while (bytes_ + size > max_bytes_ && !free_.empty()) {
      bytes_ -= free_.begin()->first;
      dropped.insert(free_.extract(free_.begin()));
    }
    if (bytes_ + size > max_bytes_ || SteadyNow() < lease_after_) return nullptr;
    bytes_ += size;
  }
  dropped.clear();
  absl::StatusOr<SharedMemory> memory = leases->Allocate(size, deadline);
  if (!memory.ok()) {
    Forget(size);
    return nullptr;
  }
  return std::make_unique<Block>(shared_from_this(), *std::move(memory), leases.get());
}

bool StagingPool::IsLeased(const TensorView& tensor) const {
  const std::shared_ptr<LeaseClient> leases = leases_->Get();
  const absl::StatusOr<int64_t> bytes = SpannedBytes(tensor.desc, "tensor");
  return leases != nullptr && bytes.ok() && leases->Find(tensor.data, *bytes).has_value();
}

void StagingPool::Ask(const AskServer& ask) {
  {
    std::lock_guard lock(mutex_);
    const absl::Time now = SteadyNow();
    if (now < ask_after_) return;
    ask_after_ = now + kAskAgain;
  }
  ask([leases = leases_](absl::StatusOr<ServerInfo> info) {
    if (!info.ok() || info->lease_socket.empty()) return;
    // A caller may wait for this, who has its answer: if the socket is busy, it is asked again.
    auto client = LeaseClient::Connect(info->lease_socket, info->lease_instance, SteadyNow());
    if (client.ok()) leases->Keep(*std::move(client));
  });
}

StagingPool::Free StagingPool::TakeFree() {
  for (const auto& [free_bytes, memory] : free_) bytes_ -= free_bytes;
  return std::exchange(free_, Free());
}

void StagingPool::DropFree() {
  Free dropped;  // freed after the lock is released
  std::lock_guard lock(mutex_);
  dropped = TakeFree();
}

void StagingPool::GiveBack(SharedMemory memory, LeaseClient* of, bool reuse) {
  SharedMemory dropped;  // freed after the lock is released
  std::lock_guard lock(mutex_);
  if (reuse && of == of_.get() && of->alive()) {
    free_.emplace(memory.size(), std::move(memory));
    return;
  }
  bytes_ -= memory.size();
  dropped = std::move(memory);
}

void StagingPool::Forget(int64_t bytes) {
  std::lock_guard lock(mutex_);
  bytes_ -= bytes;
  lease_after_ = SteadyNow() + kAskAgain;
}

template <typename Call>
void StagedCall<Call>::Finish() {
  for (const Output& output : outputs) CopyFromDense(output.dense, output.to);
  block->Reuse();
}
template struct StagedCall<RopeCall>;
template struct StagedCall<EncodeCall>;

std::unique_ptr<StagedCall<RopeCall>> Stage(const RopeCall& call, StagingPool& pool,
                                            const StagingPool::AskServer& ask,
                                            absl::Time deadline) {
  if (call.paged.has_value() || !ToRequest(call, kItemPath).ok()) return nullptr;
  std::vector<std::optional<int64_t>> offsets;  // of each tensor in the block
  int64_t bytes = 0;
  for (const RopeTensor& tensor : call.tensors) {
    // The server would write to the caller's shared output directly, so the call could not be
    // retried inline.
    if (pool.IsLeased(tensor.output)) return nullptr;
    const int64_t tensor_bytes = DenseBytesOf(tensor.input.desc);
    offsets.emplace_back();
    if (tensor_bytes < kMinStagedBytes || pool.IsLeased(tensor.input)) continue;
    offsets.back() = bytes;
    bytes += RoundUp(tensor_bytes, kAlignment);
    if (!KeepsType(tensor)) bytes += RoundUp(DenseBytesOf(tensor.output.desc), kAlignment);
  }
  if (bytes == 0) return nullptr;
  auto staged = std::make_unique<StagedCall<RopeCall>>();
  staged->block = pool.Take(bytes, ask, deadline);
  if (staged->block == nullptr) return nullptr;
  staged->call = call;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    if (!offsets[i].has_value()) continue;
    const RopeTensor& tensor = call.tensors[i];
    std::byte* const data = staged->block->data() + *offsets[i];
    CopyToDense(tensor.input, data);
    std::byte* const out =
        KeepsType(tensor) ? data : data + RoundUp(DenseBytesOf(tensor.input.desc), kAlignment);
    staged->call.tensors[i].input = DenseView(tensor.input.desc, data);
    staged->call.tensors[i].output = DenseView(tensor.output.desc, out);
    staged->outputs.push_back({out, tensor.output});
  }
  return staged;
}

std::unique_ptr<StagedCall<EncodeCall>> Stage(const EncodeCall& call, StagingPool& pool,
                                              const StagingPool::AskServer& ask,
                                              absl::Time deadline) {
  // An output of one dimension takes rows of any width, which the server cannot know.
  if (!call.output.has_value() || call.output->desc.shape.size() < 2) return nullptr;
  if (!ToRequest(call, kItemPath).ok()) return nullptr;
  const TensorDesc& output = call.output->desc;
  const int64_t bytes = DenseBytesOf(output);
  if (bytes < kMinStagedBytes || pool.IsLeased(*call.output)) return nullptr;
  const bool adds_alike = call.add_to.has_value() && call.add_to->desc.dtype == output.dtype &&
                          call.add_to->desc.shape == output.shape;
  if (call.add_to.has_value() && (!adds_alike || pool.IsLeased(*call.add_to))) return nullptr;
  auto staged = std::make_unique<StagedCall<EncodeCall>>();
  staged->block = pool.Take(bytes, ask, deadline);
  if (staged->block == nullptr) return nullptr;
  staged->call = call;
  const MutableTensorView place = DenseView(output, staged->block->data());
  if (adds_alike) {
    CopyToDense(*call.add_to, place.data);
    staged->call.add_to = place;
  }
  staged->call.output = place;
  staged->outputs.push_back({place.data, *call.output});
  return staged;
}

bool MayTravel(const absl::Status& status) {
  return !absl::IsCancelled(status) && !absl::IsDeadlineExceeded(status);
}

}  // namespace phasor::client_internal
