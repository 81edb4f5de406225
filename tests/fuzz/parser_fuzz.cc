// SPDX-License-Identifier: Apache-2.0
// The entry point of libFuzzer for parsers. Build with clang, -DPHASOR_FUZZ=ON and
// -DPHASOR_SANITIZE=fuzzer-no-link,address,undefined (and -DPHASOR_CUDA=OFF where the toolkit is),
// then run `parser_fuzz DIRECTORY tests/fuzz/parsers`. The directory may begin with the minimised
// corpus of earlier runs, tests/fuzz/parsers.tar.xz.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/check_parsers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const phasor::fuzz::ParserOutcome outcome = phasor::fuzz::CheckParser({data, size});
  if (outcome.violation.empty()) return 0;
  std::fprintf(stderr, "%s\n", outcome.violation.c_str());
  std::abort();
}
