// SPDX-License-Identifier: Apache-2.0
// Sends bytes to a socket of our own protocols, each served in this process, and checks what comes
// back.
#ifndef PHASOR_TESTS_FUZZ_CHECK_SOCKETS_H_
#define PHASOR_TESTS_FUZZ_CHECK_SOCKETS_H_

#include <string_view>

#include "tests/fuzz/check_parsers.h"

namespace phasor::fuzz {

// Lines of the lease socket. The first byte says what comes with the rest: how many descriptors, of
// memory that can be leased or not, and where the bytes are cut in two.
ParserOutcome CheckLeaseLines(std::string_view bytes);
// An HTTP request for a page.
ParserOutcome CheckPages(std::string_view bytes);

}  // namespace phasor::fuzz

#endif  // PHASOR_TESTS_FUZZ_CHECK_SOCKETS_H_
