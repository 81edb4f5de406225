// SPDX-License-Identifier: Apache-2.0
// Names the kernels: the op, its element type, and the variant.
#ifndef PHASOR_KERNELS_CUDA_KERNEL_ID_H_
#define PHASOR_KERNELS_CUDA_KERNEL_ID_H_

#include <cstdint>

#include "kernels/base/dtype.h"
#include "kernels/ops/key_form.h"

namespace phasor::cuda {

enum class Op : uint8_t {
  kEncode,
  kRotary,
  kLookup,
  kBias,
  kMoveKeys,
  kRotateScaledKeys,
  kCompareKeys,
  kCopyKeys,
  kSlotPositions
};

// The name of one kernel.
struct KernelId {
  Op op = Op::kEncode;
  Dtype dtype = Dtype::kFloat32;     // of what is written; for FLOAT8 rotations, of what is read
  bool wide = false;                 // rotary, kMoveKeys: aligned units of kVectorBytes
  bool plain = false;                // see EncodeBody and RotaryBody
  bool float8 = false;               // rotary: writes FLOAT8 from FLOAT16 or BFLOAT16
  KeyCode code = KeyCode::kFloat32;  // kMoveKeys, kRotateScaledKeys, kCompareKeys

  friend bool operator==(const KernelId&, const KernelId&) = default;
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_KERNEL_ID_H_
