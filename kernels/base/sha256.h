// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for the checksums of learned tables and the fingerprints made of them.
#ifndef PHASOR_KERNELS_BASE_SHA256_H_
#define PHASOR_KERNELS_BASE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace phasor {

// Hashes bytes that arrive in parts. Threads: one thread at a time. Owns no memory outside itself.
class Sha256 {
 public:
  void Update(absl::Span<const std::byte> bytes);
  // Returns 64 lower-case hexadecimal digits and ends the hash: no Update may follow.
  std::string HexDigest();

 private:
  void Compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_;
  size_t filled_ = 0;    // bytes of block_ in use
  uint64_t length_ = 0;  // bytes hashed in all
};

std::string Sha256Hex(absl::Span<const std::byte> bytes);
std::string Sha256Hex(std::string_view text);

}  // namespace phasor

#endif  // PHASOR_KERNELS_BASE_SHA256_H_
