// SPDX-License-Identifier: Apache-2.0
// Specs for tests, by preset and field.
#ifndef PHASOR_TESTS_SUPPORT_SPECS_H_
#define PHASOR_TESTS_SUPPORT_SPECS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "kernels/spec.h"
#include "tests/support/status_matchers.h"

namespace phasor::testing {

inline Spec PresetSpec(const std::string& name) {
  Spec spec;
  spec.preset = name;
  return spec;
}

inline Spec Encoding(int64_t dim) {
  Spec spec = PresetSpec("transformer");
  spec.dim = dim;
  return spec;
}

inline Spec Rotary(int64_t head_dim) {
  Spec spec = PresetSpec("rope-half-split");
  spec.head_dim = head_dim;
  return spec;
}

inline Spec Flow(int64_t dim) {
  Spec spec = PresetSpec("flow-periods");
  spec.dim = dim;
  return spec;
}

template <typename T>
Spec With(Spec spec, T Spec::*field, std::common_type_t<T> value) {
  spec.*field = std::move(value);
  return spec;
}

inline ResolvedSpec Resolve(const Spec& spec) {
  auto resolved = ResolveSpec(spec);
  EXPECT_THAT(resolved, IsOk());
  return resolved.ok() ? *resolved : ResolvedSpec{};
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_SPECS_H_
