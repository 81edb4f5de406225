// SPDX-License-Identifier: Apache-2.0
// The entry point of libFuzzer for parsers; tests/fuzz/run.py builds a corpus and runs it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/check_parsers.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// An input stays one of its parser, so that a run over the inputs of one parser is of that parser.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned) {
  if (size == 0) return LLVMFuzzerMutate(data, size, max_size);
  return 1 + LLVMFuzzerMutate(data + 1, size - 1, max_size - 1);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const phasor::fuzz::ParserOutcome outcome = phasor::fuzz::CheckParser({data, size});
  if (outcome.violation.empty()) return 0;
  std::fprintf(stderr, "%s\n", outcome.violation.c_str());
  std::abort();
}
