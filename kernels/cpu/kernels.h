// SPDX-License-Identifier: Apache-2.0
// The CPU kernels, one function per op and instruction set.
//
// Highway provides the vectors. This code chooses the instruction set itself, because Debian has no
// static libhwy and one binary must work on every machine.
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

// The instruction sets that kernels are compiled for. kScalar is the reference code.
enum class Target : uint8_t { kAvx3, kAvx2, kArm, kScalar };

std::string_view Name(Target target);

// The targets that this machine can run, best first, kScalar last.
const std::vector<Target>& RunnableTargets();

// Whether the CPU rounds vectors of kAvx3 to BFLOAT16 in one instruction (AVX512_BF16).
bool RoundsToBFloat16();

// The kernels of one target, which must be one of RunnableTargets().
// Encode's leaves it to the caller to call hwy::FlushStream() after it wrote past the caches
// (args.stream), before other threads read.
EncodeKernel GetEncode(Target target);
RotaryKernel GetRotary(Target target);

}  // namespace phasor::cpu

#endif  // PHASOR_KERNELS_CPU_KERNELS_H_
