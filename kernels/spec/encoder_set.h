// SPDX-License-Identifier: Apache-2.0
// Named encoders: specs to which a configuration gives names, for requests to start from.
#ifndef PHASOR_KERNELS_SPEC_ENCODER_SET_H_
#define PHASOR_KERNELS_SPEC_ENCODER_SET_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/spec/spec.h"

namespace phasor {

// An encoder as it is configured.
struct NamedSpec {
  std::string name;
  Spec spec;
  friend bool operator==(const NamedSpec&, const NamedSpec&) = default;
};

// INVALID_ARGUMENT: a name that is not [a-z0-9._-]{1,128} or begins with a dot; a spec that names
// an encoder. Else as ResolveSpec: a spec must be complete, so that a name stands for one
// fingerprint. `path` prefixes messages ("encoders[2]").
absl::Status CheckEncoder(const NamedSpec& encoder, std::string_view path);

// Encoders by name. Immutable. Threads: any.
class EncoderSet {
 public:
  struct Encoder {
    Spec spec;  // without config_json, which has been read
    std::string fingerprint;
    SpecKind kind = SpecKind::kEncoding;
  };
  // By name, in alphabetical order.
  using Map = std::map<std::string, Encoder, std::less<>>;

  EncoderSet() = default;
  // As CheckEncoder; INVALID_ARGUMENT also for a name given twice or too many of them.
  static absl::StatusOr<EncoderSet> Make(absl::Span<const NamedSpec> encoders);

  // `user` over the encoder that it names, which resolves as if the encoder's fields had been
  // spelled out; `user` itself when it names none, or another base beside it.
  // NOT_FOUND: there is no such encoder.
  absl::StatusOr<Spec> Apply(const Spec& user, std::string_view path) const;

  const Map& encoders() const { return encoders_; }

 private:
  Map encoders_;
};

// Most encoders of a set.
inline constexpr size_t kMaxEncoders = 1024;

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_ENCODER_SET_H_
