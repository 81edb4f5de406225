// SPDX-License-Identifier: Apache-2.0
// SHA-256 by OpenSSL, which uses the processor's instructions for it. The kernels have their own
// (kernels/base/sha256.h), because they must not need OpenSSL.
#ifndef PHASOR_SERVER_BASE_DIGEST_H_
#define PHASOR_SERVER_BASE_DIGEST_H_

#include <openssl/sha.h>

#include <cstddef>
#include <string>

#include "absl/strings/escaping.h"

namespace phasor {

// Returns 64 lower-case hexadecimal digits.
inline std::string DigestOf(const void* data, size_t bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(static_cast<const unsigned char*>(data), bytes, digest);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), sizeof(digest)});
}

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_DIGEST_H_
