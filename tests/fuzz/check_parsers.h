// SPDX-License-Identifier: Apache-2.0
// Gives bytes of a stranger, or of a file, to one of the parsers that requests do not reach by
// themselves, and checks the outcome.
#ifndef PHASOR_TESTS_FUZZ_CHECK_PARSERS_H_
#define PHASOR_TESTS_FUZZ_CHECK_PARSERS_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace phasor::fuzz {

// The first byte of an input names its parser, the rest is what it reads.
enum class Parser : uint8_t {
  kConfigJson,
  kSpecJson,
  kNpy,
  kSafetensors,
  kTokens,
  kPolicy,
  kConfiguration,
  kFrames,
  kLeaseLines,
  kPages,
  kAuthorization,
  kTraceparent,
  kSubjectName,
  kRawMessage,
};
inline constexpr int kParserCount = 14;

struct ParserOutcome {
  std::string violation;  // empty: the outcome is one that may be
  bool accepted = false;
};

// Runs one input. Threads: one at a time.
ParserOutcome CheckParser(absl::Span<const uint8_t> input);

}  // namespace phasor::fuzz

#endif  // PHASOR_TESTS_FUZZ_CHECK_PARSERS_H_
