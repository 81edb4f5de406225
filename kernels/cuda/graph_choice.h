// SPDX-License-Identifier: Apache-2.0
// Measures whether graphs make small trips faster. That depends on the device and its driver by
// microseconds.
#ifndef PHASOR_KERNELS_CUDA_GRAPH_CHOICE_H_
#define PHASOR_KERNELS_CUDA_GRAPH_CHOICE_H_

#include "kernels/cuda/driver.h"

namespace phasor::cuda {

// Times the rotation of one token, in turns as a graph and call by call. Returns true if the graph
// takes at least a twentieth less; false if the device cannot be measured.
bool AreGraphsSooner(Driver& driver);

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_GRAPH_CHOICE_H_
