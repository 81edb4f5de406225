// SPDX-License-Identifier: Apache-2.0
// Loops over the blocks and threads of a batch and calls the phases of the kernel's body.
#include "kernels/cuda/run_on_host.h"

#include <memory>

#include "kernels/cuda/kernels.h"

namespace phasor::cuda {
namespace {

// Runs the threads of one block, phase by phase if it has phases.
template <typename Body>
void RunBlock(const typename Body::Item& item, const std::byte* arena, int64_t block) {
  if constexpr (HasPhases<Body>) {
    struct Memory {
      typename Body::Shared shared;
      typename Body::State states[kThreads];
    };
    static thread_local const auto memory = std::make_unique<Memory>();
    if constexpr (HasRows<Body>) {
      for (int t = 0; t < kThreads; ++t) Body::FindRows(item, arena, block, t, memory->shared);
      for (int t = 0; t < kThreads; ++t) Body::ReadRows(item, t, memory->shared);
    }
    for (int t = 0; t < kThreads; ++t) Body::Angles(item, arena, block, t, memory->shared);
    for (int t = 0; t < kThreads; ++t) Body::Find(item, arena, block, t, memory->states[t]);
    for (int t = 0; t < kThreads; ++t) Body::Load(memory->states[t]);
    if constexpr (HasTurn<Body>) {
      for (int t = 0; t < kThreads; ++t) Body::Turn(item, memory->shared, memory->states[t]);
    }
    for (int t = 0; t < kThreads; ++t) Body::Finish(item, memory->shared, memory->states[t]);
    if constexpr (HasRows<Body>) {
      for (int t = 0; t < kThreads; ++t) Body::WriteRows(item, t, memory->shared);
    }
  } else if constexpr (HasSteps<Body>) {
    static thread_local const auto shared = std::make_unique<typename Body::Shared>();
    for (int step = 0; step < Body::StepsOf(item); ++step) {
      for (int t = 0; t < kThreads; ++t) Body::Run(item, arena, block, t, step, *shared);
    }
  } else {
    for (int t = 0; t < kThreads; ++t) Body::Run(item, arena, block, t);
  }
}

}  // namespace

void RunOnHost(const KernelId& id, const Batch& batch) {
  VisitBody(id, [&]<typename Body>(Body) {
    for (int64_t block = 0; block < batch.blocks; ++block) {
      const auto found = FindItem<typename Body::Item>(batch.host, batch.items, batch.first_block,
                                                       batch.count, block);
      RunBlock<Body>(found.item, batch.host, found.block);
    }
  });
}

}  // namespace phasor::cuda
