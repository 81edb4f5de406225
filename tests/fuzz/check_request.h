// SPDX-License-Identifier: Apache-2.0
// Passes one fuzzed request through all code that reads it: walker, parser, preparation, engine
// run, response.
#ifndef PHASOR_TESTS_FUZZ_CHECK_REQUEST_H_
#define PHASOR_TESTS_FUZZ_CHECK_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace phasor::fuzz {

// The largest response that a fuzzed request may ask for.
inline constexpr int64_t kMaxResponseBytes = 1 << 20;

// Encode, ApplyRoPE, BatchEncode, BatchApplyRoPE, ModelInfer, MoveKeys, BatchMoveKeys.
inline constexpr int kMethodCount = 7;
inline constexpr size_t kModelInfer = 4;

// What came of a request.
struct Outcome {
  std::string violation;  // empty: every status code was one that a caller's mistake may have
  bool computed = false;  // some item reached the backend
};

// Input: byte 0 chooses the method, byte 1 how the bytes are cut into pieces, the rest is the
// message. Threads: one at a time.
Outcome CheckRequest(absl::Span<const uint8_t> input);

}  // namespace phasor::fuzz

#endif  // PHASOR_TESTS_FUZZ_CHECK_REQUEST_H_
