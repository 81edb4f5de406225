// SPDX-License-Identifier: Apache-2.0
// Whether small trips to a device are worth a graph: a question of microseconds that each device
// and its driver answer for themselves.
#ifndef PHASOR_KERNELS_CUDA_GRAPH_CHOICE_H_
#define PHASOR_KERNELS_CUDA_GRAPH_CHOICE_H_

#include "kernels/cuda/driver.h"

namespace phasor::cuda {

// Measures the rotation of a token, as a graph and call by call in turns; a graph must take a
// twentieth less. A device that cannot be measured has none worth it.
bool AreGraphsSooner(Driver& driver);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_GRAPH_CHOICE_H_
