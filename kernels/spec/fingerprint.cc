// SPDX-License-Identifier: Apache-2.0
// Hashes resolved specs: Hash() for tables in memory, Fingerprint() equal across machines and
// releases.
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "kernels/spec/fields.h"
#include "kernels/spec/spec.h"

namespace phasor {
namespace {

// 128-bit FNV-1a, byte by byte. Fingerprints are this.
class Fnv {
 public:
  void Byte(uint8_t byte) {
    constexpr unsigned __int128 kPrime = (static_cast<unsigned __int128>(1) << 88) + 0x13B;
    hash_ = (hash_ ^ byte) * kPrime;
  }
  void Word(uint64_t word) {
    for (int shift = 0; shift < 64; shift += 8) Byte(static_cast<uint8_t>(word >> shift));
  }
  void Text(std::string_view text) {
    for (const char c : text) Byte(static_cast<uint8_t>(c));
    Byte(0);
  }
  unsigned __int128 hash() const { return hash_; }

 private:
  unsigned __int128 hash_ =
      (static_cast<unsigned __int128>(0x6c62272e07bb0142) << 64) | 0x62b821756295c58d;
};

// Mixes words at once, and names by their address: for tables in memory, which every call asks.
class WordMix {
 public:
  void Byte(uint8_t byte) { Word(byte); }
  void Word(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15;
    hash_ ^= hash_ >> 32;
  }
  void Text(std::string_view name) { Word(reinterpret_cast<uintptr_t>(name.data())); }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

// Mixes names and little-endian values. Threads: one thread at a time.
template <typename Mix>
class Hasher : public Mix {
 public:
  // Adds a field. A default value adds nothing, so a field that is added later changes no older
  // hash.
  template <typename T>
  void Field(std::string_view name, const T& value, const T& default_value) {
    if (value == default_value) return;
    Text(name);
    Value(value);
  }

 private:
  using Mix::Byte;
  using Mix::Text;
  using Mix::Word;
  void Value(double value) { Word(std::bit_cast<uint64_t>(value)); }
  template <typename T>
  requires(std::is_integral_v<T> || std::is_enum_v<T>) void Value(T value) {
    Word(static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
  template <typename T>
  void Value(const std::vector<T>& list) {
    Word(list.size());
    for (const T& value : list) Value(value);
  }
  template <typename T>
  void Value(const std::optional<T>& value) {
    Byte(value.has_value());
    if (value.has_value()) Value(*value);
  }
  void Value(const RopeScaling& scaling) {
    VisitScalingRules([&]<typename T>(const char* name, const T&) {
      if (!std::holds_alternative<T>(scaling)) return;
      Text(name);
      Value(std::get<T>(scaling));
    });
  }
  template <typename T>
  requires std::is_class_v<T>
  void Value(const T& message) {
    VisitFields(&message,
                [&](const char* name, auto member) { Field(name, message.*member, T().*member); });
    Byte(0);
  }
};

template <typename Mix>
auto Hash(const ResolvedSpec& spec) {
  static const auto& defaults = *new ResolvedSpec;
  Hasher<Mix> hasher;
  hasher.Field("numerics_version", kNumericsVersion, uint32_t{0});
  VisitSpecFields([&](const SpecField& field, auto, auto member) {
    if constexpr (!std::is_same_v<decltype(member), NotResolved>) {
      hasher.Field(field.name, spec.*member, defaults.*member);
    }
  });
  return hasher.hash();
}

std::string Digits(unsigned __int128 hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (int shift = 124; shift >= 0; shift -= 4) {
    hex += kDigits[static_cast<int>(hash >> shift) & 15];
  }
  return hex;
}

}  // namespace

uint64_t ResolvedSpec::Hash() const { return phasor::Hash<WordMix>(*this); }

std::string Fingerprint(const ResolvedSpec& spec) { return Digits(Hash<Fnv>(spec)); }

std::string FingerprintOfLayers(absl::Span<const std::string> layers) {
  Fnv hasher;
  for (const std::string& layer : layers) hasher.Text(layer);
  return Digits(hasher.hash());
}

}  // namespace phasor
