// SPDX-License-Identifier: Apache-2.0
// Named encoders: specs that a server's configuration gives names to, for requests to build on.
#ifndef PHASOR_KERNELS_SPEC_ENCODER_SET_H_
#define PHASOR_KERNELS_SPEC_ENCODER_SET_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/spec/spec.h"

namespace phasor {

// An encoder as the configuration gives it.
struct NamedSpec {
  std::string name;
  Spec spec;
  friend bool operator==(const NamedSpec&, const NamedSpec&) = default;
};

// Checks one encoder. INVALID_ARGUMENT: the name is not [a-z0-9._-]{1,128} or begins with a dot, or
// the spec names an encoder. Also the errors of ResolveSpec: the spec must be complete, so that a
// name stands for one fingerprint. `path` begins each message ("encoders[2]").
absl::Status CheckEncoder(const NamedSpec& encoder, std::string_view path);

// Finds encoders by name and merges requests over them. Immutable. Threads: any.
class EncoderSet {
 public:
  struct Encoder {
    Spec spec;  // without config_json, which has been read already
    std::string fingerprint;
    SpecKind kind = SpecKind::kEncoding;
  };
  // In alphabetical order of the names.
  using Map = std::map<std::string, Encoder, std::less<>>;

  EncoderSet() = default;
  // The errors of CheckEncoder; also INVALID_ARGUMENT for a name given twice or too many encoders.
  static absl::StatusOr<EncoderSet> Make(absl::Span<const NamedSpec> encoders);

  // Merges `user` over the encoder that it names; the result resolves as if the request had spelled
  // out the encoder's fields. Returns `user` unchanged if it names no encoder, or names another
  // base too. NOT_FOUND: no encoder has that name.
  absl::StatusOr<Spec> Apply(const Spec& user, std::string_view path) const;

  const Map& encoders() const { return encoders_; }

 private:
  Map encoders_;
};

// The most encoders of a set.
inline constexpr size_t kMaxEncoders = 1024;

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_ENCODER_SET_H_
