// SPDX-License-Identifier: Apache-2.0
// The entry point of libFuzzer. Build with clang, -DPHASOR_FUZZ=ON and
// -DPHASOR_SANITIZE=fuzzer-no-link,address,undefined, then run `request_fuzz tests/fuzz/corpus`.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/check_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const phasor::fuzz::Outcome outcome = phasor::fuzz::CheckRequest({data, size});
  if (outcome.violation.empty()) return 0;
  std::fprintf(stderr, "%s\n", outcome.violation.c_str());
  std::abort();
}
