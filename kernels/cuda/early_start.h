// SPDX-License-Identifier: Apache-2.0
// With programmatic dependent launch, the first blocks of a kernel may start while the kernel
// before it ends. Until WaitForEarlierKernels returns, they touch nothing that an earlier kernel
// reads or writes: they may read arguments and arenas. Does nothing on other architectures and on
// the host.
#ifndef PHASOR_KERNELS_CUDA_EARLY_START_H_
#define PHASOR_KERNELS_CUDA_EARLY_START_H_

#include "kernels/base/host_device.h"

namespace phasor::cuda {

PHASOR_HD void LetLaterKernelsStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

PHASOR_HD void WaitForEarlierKernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_EARLY_START_H_
