// SPDX-License-Identifier: Apache-2.0
// Passes one fuzzed ModelInfer through all code that reads it, up to the bytes of its answer.
#ifndef PHASOR_TESTS_FUZZ_CHECK_INFER_H_
#define PHASOR_TESTS_FUZZ_CHECK_INFER_H_

#include <cstddef>

#include "absl/types/span.h"
#include "tests/fuzz/check_request.h"

namespace phasor::fuzz {

// What requests may name: a region of shared memory, and its size.
inline constexpr char kRegion[] = "r";
inline constexpr int64_t kRegionBytes = 4096;

// `pieces`: the message as it was received. Threads: one at a time.
Outcome CheckInfer(absl::Span<const absl::Span<const std::byte>> pieces);

}  // namespace phasor::fuzz

#endif  // PHASOR_TESTS_FUZZ_CHECK_INFER_H_
