// SPDX-License-Identifier: Apache-2.0
// Checks and resolves configured encoders, and merges requests over them.
#include "kernels/spec/encoder_set.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/spec_base.h"
#include "kernels/tensor/table.h"

namespace phasor {
namespace {

// The most names that an error lists; errors travel in a gRPC trailer.
constexpr size_t kListedNames = 10;
// The most bytes of a wrong name that an error shows; a caller may send a long one.
constexpr size_t kShownBytes = 128;
// Limits the search for the nearest name, because every item of a batch may have a wrong one:
// compare only with this many names before and after it in the alphabet, and only this many bytes.
constexpr int kComparedNames = 16;
constexpr size_t kComparedNameBytes = 32;

absl::Status NotFound(const EncoderSet::Map& encoders, std::string_view name,
                      std::string_view path) {
  const std::string shown = Shown(name, kShownBytes);
  std::string listed;
  size_t count = 0;
  for (auto known = encoders.begin(); known != encoders.end() && count < kListedNames; ++known) {
    listed += (count++ == 0 ? "" : ", ") + known->first;
  }
  if (encoders.size() > kListedNames) listed += ", ...";
  auto begin = encoders.lower_bound(shown);
  auto end = begin;
  for (int i = 0; i < kComparedNames && begin != encoders.begin(); ++i) --begin;
  for (int i = 0; i < kComparedNames && end != encoders.end(); ++i) ++end;
  std::string_view nearest;
  size_t least = std::numeric_limits<size_t>::max();
  for (auto known = begin; known != end; ++known) {
    const size_t distance =
        EditDistance(name.substr(0, kComparedNameBytes),
                     std::string_view(known->first).substr(0, kComparedNameBytes));
    if (distance < least) nearest = known->first;
    least = std::min(least, distance);
  }
  return absl::NotFoundError(StrCat(path, ".encoder: no encoder named \"", shown,
                                    "\"; did you mean \"", nearest, "\"? must be one of ", listed));
}

// The spec that requests build on. A config.json is read once here, not for every request.
absl::StatusOr<Spec> SpecToStartFrom(const Spec& spec, std::string_view path) {
  if (spec.config_json.empty()) return spec;
  PHASOR_ASSIGN_OR_RETURN(Spec read, WithBase(spec, path));
  read.config_json.clear();
  read.layer_type.reset();
  read.sub_config.reset();
  return read;
}

absl::StatusOr<EncoderSet::Encoder> ReadEncoder(const NamedSpec& encoder, std::string_view path) {
  if (!IsTableName(encoder.name)) {
    return Invalid(path, ".name: '", Shown(encoder.name, kShownBytes),
                   "' is no name of an encoder; must be 1 to "
                   "128 characters of a-z, 0-9, '.', '_' and '-', the first not a dot");
  }
  const std::string spec_path = StrCat(path, ".spec");
  if (!encoder.spec.encoder.empty()) {
    return Invalid(spec_path, ".encoder: set; must start from a preset, config_json or nothing");
  }
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(encoder.spec, spec_path));
  PHASOR_ASSIGN_OR_RETURN(Spec spec, SpecToStartFrom(encoder.spec, spec_path));
  return EncoderSet::Encoder{std::move(spec), Fingerprint(resolved), resolved.kind};
}

}  // namespace

absl::Status CheckEncoder(const NamedSpec& encoder, std::string_view path) {
  return ReadEncoder(encoder, path).status();
}

absl::StatusOr<EncoderSet> EncoderSet::Make(absl::Span<const NamedSpec> encoders) {
  if (encoders.size() > kMaxEncoders) {
    return Invalid("encoders: ", encoders.size(), "; must be at most ", kMaxEncoders);
  }
  EncoderSet set;
  for (size_t i = 0; i < encoders.size(); ++i) {
    const std::string path = StrCat("encoders[", i, "]");
    PHASOR_ASSIGN_OR_RETURN(Encoder encoder, ReadEncoder(encoders[i], path));
    if (!set.encoders_.emplace(encoders[i].name, std::move(encoder)).second) {
      return Invalid(path, ".name: '", encoders[i].name, "' is given twice; must be unique");
    }
  }
  return set;
}

absl::StatusOr<Spec> EncoderSet::Apply(const Spec& user, std::string_view path) const {
  const bool other_base = !user.preset.empty() || !user.config_json.empty();
  if (user.encoder.empty() || encoders_.empty() || other_base) return user;
  const auto found = encoders_.find(user.encoder);
  if (found == encoders_.end()) return NotFound(encoders_, user.encoder, path);
  Spec fields = user;
  fields.encoder.clear();
  return MergeOverBase(found->second.spec, fields);
}

}  // namespace phasor
