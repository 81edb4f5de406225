// SPDX-License-Identifier: Apache-2.0
// The entry point of libFuzzer for requests; tests/fuzz/run.py builds a corpus and runs it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/fuzz/check_request.h"
#include "tests/fuzz/mutator.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Every second change is one of fields, which passes the parser. The method stays.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  if (size < 2) return LLVMFuzzerMutate(data, size, max_size);
  if (seed % 2 == 0) return 1 + LLVMFuzzerMutate(data + 1, size - 1, max_size - 1);
  phasor::fuzz::Mutator mutator(seed, {std::string(data, data + size)});
  const std::string changed = mutator.Next();
  const size_t kept = std::min(changed.size(), max_size);
  std::copy_n(changed.begin() + 1, kept - 1, data + 1);
  return kept;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const phasor::fuzz::Outcome outcome = phasor::fuzz::CheckRequest({data, size});
  if (outcome.violation.empty()) return 0;
  std::fprintf(stderr, "%s\n", outcome.violation.c_str());
  std::abort();
}
