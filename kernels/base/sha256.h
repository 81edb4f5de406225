// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for the checksums of learned tables and the fingerprints made of them. The
// server takes OpenSSL's, which is faster (server/base/digest.h); the kernels must not need
// OpenSSL.
#ifndef PHASOR_KERNELS_BASE_SHA256_H_
#define PHASOR_KERNELS_BASE_SHA256_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace phasor {

// Return 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view text);
std::string Sha256Hex(absl::Span<const std::byte> bytes);

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_SHA256_H_
