// SPDX-License-Identifier: Apache-2.0
// Rotary for every SIMD target. Contract: kernels/ops/rotary.h.
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rotary.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must follow foreach_target.h, which includes this file once per target.
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/memory-inl.h"
#include "kernels/cpu/rotary_tables-inl.h"
#include "kernels/cpu/rotate_head-inl.h"
#include "kernels/cpu/rotate_keys-inl.h"
#include "kernels/cpu/rotate_tensor-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace phasor::cpu {
namespace HWY_NAMESPACE {

#if PHASOR_SCALAR_TARGET

void RotateTile(const RotaryArgs& args) { reference::Rotary(args); }

#else

// Copies a tensor that does not rotate.
HWY_NOINLINE void CopyTensor(const RotaryArgs& args, const RotaryArgs::Tensor& tensor) {
  const auto bytes = static_cast<size_t>(args.head_dim * SizeOf(tensor.dtype));
  ForEachHead(args, tensor, [&](const std::byte* x, std::byte* y, int64_t) HWY_ATTR {
    if (x != y) std::memcpy(y, x, bytes);
  });
}

void RotateTile(const RotaryArgs& args) {
  const Scratch scratch = Carve(args);
  const Needs needs = NeedsOf(args);
  for (int64_t t = 0; t < args.tokens; ++t) {
    TokenPhases(args, scratch, t);
    if (HasXpos(args)) TokenAmplitudes(args, scratch, t);
    for (int64_t h = 0; h < args.frequency_heads; ++h) {
      const int64_t row = t * args.frequency_heads + h;
      const int64_t pair = h * args.head_pairs;
      if (needs.f32) FillTrig32(args, scratch, needs, pair, RowTrig32(scratch, row));
      if (needs.f64) FillTrig64(args, scratch, pair, RowTrig64(scratch, row));
    }
  }
  bool streamed = false;
  for (int64_t i = 0; i < args.tensor_count; ++i) {
    const RotaryArgs::Tensor& tensor = args.tensors[i];
    if (tensor.rows != nullptr) {
      RotateRows(args, scratch, tensor, streamed);
      continue;
    }
    if (tensor.float8 != Float8::kNone) {
      if (tensor.dtype == Dtype::kFloat16) {
        RotateTensorFloat8<F16>(args, scratch, tensor);
      } else {
        RotateTensorFloat8<BF16>(args, scratch, tensor);
      }
      continue;
    }
    if (!tensor.rotates) {
      CopyTensor(args, tensor);
      continue;
    }
    switch (tensor.dtype) {
      case Dtype::kFloat64:
        RotateTensor<F64, false>(args, scratch, tensor);
        break;
      case Dtype::kFloat32:
        RotateTensorMaybeStream<F32>(args, scratch, tensor, streamed);
        break;
      case Dtype::kFloat16:
        RotateTensorMaybeStream<F16>(args, scratch, tensor, streamed);
        break;
      default:
        RotateTensorMaybeStream<BF16>(args, scratch, tensor, streamed);
        break;
    }
  }
  if (streamed) hwy::FlushStream();
}

#endif  // PHASOR_SCALAR_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace phasor::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace phasor::cpu {

RotaryKernel GetRotary(Target target) {
#if HWY_ARCH_X86
  if (target == Target::kAvx3) return HWY_CHOOSE_AVX3(RotateTile);
  if (target == Target::kAvx2) return HWY_CHOOSE_AVX2(RotateTile);
#else
  if (target == Target::kArm) return HWY_STATIC_DISPATCH(RotateTile);
#endif
  return &reference::Rotary;
}

}  // namespace phasor::cpu
#endif  // HWY_ONCE
