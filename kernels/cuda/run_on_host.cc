// SPDX-License-Identifier: Apache-2.0
// Loops over the blocks and threads of a batch and calls the kernel's body.
#include "kernels/cuda/run_on_host.h"

#include "kernels/cuda/kernels.h"

namespace phasor::cuda {

void RunOnHost(const KernelId& id, const Batch& batch) {
  VisitBody(id, [&]<typename Body>(Body) {
    for (int64_t block = 0; block < batch.blocks; ++block) {
      for (int thread = 0; thread < kThreads; ++thread) RunThread<Body>(batch, block, thread);
    }
  });
}

}  // namespace phasor::cuda
