// SPDX-License-Identifier: Apache-2.0
// Groups items by kernel. Every kernel is launched once for all of its items, whichever requests
// they come from.
#ifndef PHASOR_KERNELS_CUDA_LAUNCH_LIST_H_
#define PHASOR_KERNELS_CUDA_LAUNCH_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/kernel_id.h"

namespace phasor::cuda {

// One launch of a kernel.
struct Launch {
  KernelId kernel;
  Batch batch;
};

// Collects items and makes their launches. Owns copies of the items. Threads: one thread at a time.
class LaunchList {
 public:
  // Item is the type of the kernel's body.
  template <typename Item>
  void Add(const KernelId& kernel, const Item& item) {
    static_assert(std::is_trivially_copyable_v<Item> && alignof(Item) <= kArenaAlignment);
    const int64_t blocks = item.grid.blocks;
    Group& group = GroupFor(kernel, blocks);
    group.first_block.push_back(group.blocks);
    group.blocks += blocks;
    const auto* bytes = reinterpret_cast<const std::byte*>(&item);
    group.items.insert(group.items.end(), bytes, bytes + sizeof item);
  }

  // Puts the items into the arena, which the launches refer to. `device`: where kernels find the
  // arena.
  std::vector<Launch> Finish(Arena& arena, const std::byte* device) const {
    std::vector<Launch> launches;
    for (const Group& group : groups_) {
      Batch batch;
      batch.arena = device;
      batch.host = arena.host();
      batch.items = arena.Put(absl::MakeConstSpan(group.items)).at;
      batch.first_block = arena.Put(absl::MakeConstSpan(group.first_block)).at;
      batch.count = static_cast<int32_t>(group.first_block.size());
      batch.blocks = group.blocks;
      launches.push_back({group.kernel, batch});
    }
    for (Launch& launch : launches) launch.batch.arena_bytes = arena.used();
    return launches;
  }

 private:
  static constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // of a launch

  struct Group {
    KernelId kernel;
    std::vector<std::byte> items;
    std::vector<int64_t> first_block;
    int64_t blocks = 0;
  };

  Group& GroupFor(const KernelId& kernel, int64_t blocks) {
    for (Group& group : groups_) {
      if (group.kernel == kernel && group.blocks + blocks <= kMostBlocks) return group;
    }
    const auto at = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
      return TurnOf(group.kernel.op) > TurnOf(kernel.op);
    });
    return *groups_.insert(at, Group{kernel, {}, {}, 0});
  }

  // Copies of keys go first: a copy may take old scales along, which a move then replaces.
  // Positions of slots go last: they say that the keys are moved.
  static int TurnOf(Op op) { return op == Op::kCopyKeys ? 0 : op == Op::kSlotPositions ? 2 : 1; }

  std::vector<Group> groups_;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_LAUNCH_LIST_H_
