// SPDX-License-Identifier: Apache-2.0
// The CPU kernels, one function per op, chosen once for the machine's instruction set.
//
// Highway provides the vectors; the choice is ours, because Debian has no static libhwy and one
// binary must carry everything.
#ifndef PHASOR_KERNELS_CPU_KERNELS_H_
#define PHASOR_KERNELS_CPU_KERNELS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/ops/encode.h"
#include "kernels/ops/rotary.h"

namespace phasor::cpu {

using EncodeKernel = void (*)(const EncodeArgs&);
using RotaryKernel = void (*)(const RotaryArgs&);

// Instruction sets that kernels are compiled for. kScalar is the reference code.
enum class Target : uint8_t { kAvx3, kAvx2, kArm, kScalar };

std::string_view Name(Target target);

// Targets that this machine can run, best first, kScalar last.
const std::vector<Target>& RunnableTargets();

// Kernels of one target; `target` is one of RunnableTargets().
EncodeKernel GetEncode(Target target);
RotaryKernel GetRotary(Target target);

}  // namespace phasor::cpu

#endif  // PHASOR_KERNELS_CPU_KERNELS_H_
