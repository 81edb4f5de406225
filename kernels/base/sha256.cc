// SPDX-License-Identifier: Apache-2.0
// Computes SHA-256 by sections 4 to 6 of FIPS 180-4.
#include "kernels/base/sha256.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace phasor {
namespace {

constexpr uint32_t kRoundConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t LoadBigEndian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

using State = std::array<uint32_t, 8>;
constexpr size_t kBlockBytes = 64;

void Compress(const uint8_t* block, State& state) {
  uint32_t w[64];
  for (int t = 0; t < 16; ++t) w[t] = LoadBigEndian(block + 4 * t);
  for (int t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int t = 0; t < 64; ++t) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRoundConstants[t] + w[t];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += sums[i];
}

}  // namespace

std::string Sha256Hex(std::string_view text) {
  State state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const auto* data = reinterpret_cast<const uint8_t*>(text.data());
  size_t left = text.size();
  for (; left >= kBlockBytes; data += kBlockBytes, left -= kBlockBytes) Compress(data, state);
  // The rest, a bit that ends it, zeros, and the length in bits at the end of a block.
  uint8_t end[2 * kBlockBytes] = {};
  if (left > 0) std::memcpy(end, data, left);
  end[left] = 0x80;
  const size_t end_bytes = left < kBlockBytes - 8 ? kBlockBytes : 2 * kBlockBytes;
  const uint64_t bits = uint64_t{text.size()} * 8;
  for (size_t i = 0; i < 8; ++i) {
    end[end_bytes - 8 + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  }
  for (size_t i = 0; i < end_bytes; i += kBlockBytes) Compress(end + i, state);
  std::string hex;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) {
      hex.push_back("0123456789abcdef"[word >> shift & 15]);
    }
  }
  return hex;
}

std::string Sha256Hex(absl::Span<const std::byte> bytes) {
  return Sha256Hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace phasor
