// SPDX-License-Identifier: Apache-2.0
// Maps the name of a kernel to its body, for the two files that run bodies: launch.cu on the device
// and run_on_host.cc on the host. Compiles every body, so include it nowhere else.
#ifndef PHASOR_KERNELS_CUDA_KERNELS_H_
#define PHASOR_KERNELS_CUDA_KERNELS_H_

#include <cstdint>

#include "kernels/cuda/bias.h"
#include "kernels/cuda/compare_keys.h"
#include "kernels/cuda/encode.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/kernel_id.h"
#include "kernels/cuda/keys.h"
#include "kernels/cuda/lookup.h"
#include "kernels/cuda/move_keys.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/rotate_keys.h"
#include "kernels/cuda/rotate_scaled_keys.h"
#include "kernels/math/element.h"

namespace phasor::cuda {

// Calls f(Body{}) with the body of a rotary kernel.
template <typename Element, bool kFloat8, typename F>
void VisitRotaryBody(const KernelId& id, F&& f) {
  if (!id.wide) return f(RotaryBody<Element, false, kFloat8, false>{});
  return id.plain ? f(RotaryBody<Element, true, kFloat8, true>{})
                  : f(RotaryBody<Element, true, kFloat8, false>{});
}

// Calls f(Body{}) with the body for keys of a code that is a float.
template <template <KeyCode> typename Body, typename F>
void VisitFloatKeysBody(KeyCode code, F&& f) {
  switch (code) {
    case KeyCode::kFloat32:
      return f(Body<KeyCode::kFloat32>{});
    case KeyCode::kFloat16:
      return f(Body<KeyCode::kFloat16>{});
    case KeyCode::kBFloat16:
      return f(Body<KeyCode::kBFloat16>{});
    case KeyCode::kFloat8E4M3:
      return f(Body<KeyCode::kFloat8E4M3>{});
    case KeyCode::kFloat8E5M2:
      return f(Body<KeyCode::kFloat8E5M2>{});
    default:
      return;  // no item asks for it
  }
}

// Calls f(Body{}) with the body for keys of a code.
template <template <KeyCode> typename Body, typename F>
void VisitKeysBody(KeyCode code, F&& f) {
  switch (code) {
    case KeyCode::kInt8:
      return f(Body<KeyCode::kInt8>{});
    case KeyCode::kQ8_0:
      return f(Body<KeyCode::kQ8_0>{});
    case KeyCode::kQ4_0:
      return f(Body<KeyCode::kQ4_0>{});
    case KeyCode::kQ4_1:
      return f(Body<KeyCode::kQ4_1>{});
    case KeyCode::kQ5_0:
      return f(Body<KeyCode::kQ5_0>{});
    case KeyCode::kQ5_1:
      return f(Body<KeyCode::kQ5_1>{});
    default:
      return VisitFloatKeysBody<Body>(code, f);
  }
}

// Calls f(Body{}) with the body for keys of a code that may have a scale in or beside each row.
template <typename F>
void VisitScaledKeysBody(KeyCode code, F&& f) {
  switch (code) {
    case KeyCode::kFloat8E4M3:
      return f(RotateScaledKeysBody<KeyCode::kFloat8E4M3>{});
    case KeyCode::kFloat8E5M2:
      return f(RotateScaledKeysBody<KeyCode::kFloat8E5M2>{});
    case KeyCode::kInt8:
      return f(RotateScaledKeysBody<KeyCode::kInt8>{});
    case KeyCode::kQ8_0:
      return f(RotateScaledKeysBody<KeyCode::kQ8_0>{});
    default:
      return;  // no item asks for it
  }
}

// Calls f(Body{}) with the body of `id`.
template <typename F>
void VisitBody(const KernelId& id, F&& f) {
  if (id.op == Op::kCopyKeys) return f(CopyKeysBody{});
  if (id.op == Op::kSlotPositions) return f(SlotPositionsBody{});
  if (id.op == Op::kMoveKeys && id.wide) return VisitFloatKeysBody<RotateKeysBody>(id.code, f);
  if (id.op == Op::kRotateScaledKeys) return VisitScaledKeysBody(id.code, f);
  if (id.op == Op::kMoveKeys) return VisitKeysBody<MoveKeysBody>(id.code, f);
  if (id.op == Op::kCompareKeys) return VisitKeysBody<CompareKeysBody>(id.code, f);
  if (id.op == Op::kBias && id.dtype == Dtype::kInt32) return f(BiasIndexBody<int32_t>{});
  if (id.op == Op::kBias && id.dtype == Dtype::kInt64) return f(BiasIndexBody<int64_t>{});
  scalar::VisitElement(id.dtype, [&]<typename Element>(Element) {
    switch (id.op) {
      case Op::kEncode:
        return id.plain ? f(EncodeBody<Element, true>{}) : f(EncodeBody<Element, false>{});
      case Op::kRotary:
        if constexpr (Element::kBytes == 2) {
          if (id.float8) return VisitRotaryBody<Element, true>(id, f);
        }
        return VisitRotaryBody<Element, false>(id, f);
      case Op::kLookup:
        return f(LookupBody<Element>{});
      case Op::kBias:
        return f(BiasBody<Element>{});
      case Op::kMoveKeys:
      case Op::kRotateScaledKeys:
      case Op::kCompareKeys:
      case Op::kCopyKeys:
      case Op::kSlotPositions:
        return;  // above
    }
  });
}

// Whether the threads of a block share memory and work in phases, as rotary's do.
template <typename Body>
concept HasPhases = requires {
  typename Body::State;
};

// Whether a phase comes between Load and Finish, and whether rows pass through shared memory.
template <typename Body>
concept HasTurn = HasPhases<Body> && requires {
  &Body::Turn;
};
template <typename Body>
concept HasRows = HasTurn<Body> && Body::kQ8;

// Whether they work in any number of steps, as those that move other keys do.
template <typename Body>
concept HasSteps = requires(const typename Body::Item& item) {
  Body::StepsOf(item);
};

}  // namespace phasor::cuda

#endif  // PHASOR_KERNELS_CUDA_KERNELS_H_
