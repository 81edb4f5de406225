// SPDX-License-Identifier: Apache-2.0
// Runs the steps of resolution.h: Spec to ResolvedSpec. Keeps the last few results of each thread.
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/fields.h"
#include "kernels/spec/names.h"
#include "kernels/spec/parity_check.h"
#include "kernels/spec/resolution.h"
#include "kernels/spec/spec.h"
#include "kernels/spec/spec_base.h"

namespace phasor {
namespace {

absl::Status ResolveKindAndFamily(Resolution& r) {
  if (!r.merged.kind.has_value()) {
    return r.Invalid("kind", "not set; must be given, or a preset that has it");
  }
  if (!r.merged.family.has_value()) {
    return r.Invalid("family", "not set; must be given, or a preset that has it");
  }
  r.out.kind = *r.merged.kind;
  r.out.family = *r.merged.family;
  if (r.out.kind == SpecKind::kRotary && r.out.family == FrequencyFamily::kPerElement) {
    return r.Invalid("family",
                     "PER_ELEMENT makes no pairs; a ROTARY spec takes every other family");
  }
  return absl::OkStatus();
}

// Refuses a field that would change nothing: the user must have misunderstood it. Fields of the
// base that the user's kind or family does not use are dropped instead.
absl::Status RejectUnusedFields(Resolution& r) {
  static const Spec kUnset;
  absl::Status status;
  VisitSpecFields([&](const SpecField& field, auto member, auto) {
    if (field.used(r.out)) return;
    r.merged.*member = kUnset.*member;
    if (!IsSet(r.user.*member)) return;
    status.Update(r.Invalid(field.name, "has no meaning for ", Name(r.out.kind),
                            " specs of family ", Name(r.out.family), "; must not be set"));
  });
  return status;
}

absl::Status ResolvePrecision(Resolution& r) {
  r.out.precision = r.merged.precision.value_or(Precision::kExact);
  if (r.out.precision == Precision::kExact) {
    return r.user.parity.has_value()
               ? r.Invalid("parity", "set beside precision EXACT; must be only for PARITY")
               : absl::OkStatus();
  }
  if (!r.merged.parity.has_value()) {
    return r.Invalid("parity", "not set; must be given for precision PARITY",
                     !r.user.preset.empty() ? StrCat(": preset ", r.user.preset, " names none")
                     : !r.user.config_json.empty()
                         ? ": how the class of this model_type rounds is not known"
                         : "");
  }
  PHASOR_ASSIGN_OR_RETURN(r.out.parity, parity::Resolve(*r.merged.parity, r.out, r.path));
  return absl::OkStatus();
}

absl::StatusOr<ResolvedSpec> ResolveAnew(const Spec& spec, std::string_view path) {
  Resolution r = {.user = spec, .path = path};
  PHASOR_ASSIGN_OR_RETURN(r.merged, WithBase(spec, path));
  PHASOR_RETURN_IF_ERROR(ResolveKindAndFamily(r));
  PHASOR_RETURN_IF_ERROR(RejectUnusedFields(r));
  PHASOR_RETURN_IF_ERROR(ResolveFamily(r));
  PHASOR_RETURN_IF_ERROR(
      r.Finite("attention_factor", r.merged.attention_factor, &r.out.attention_factor));
  const bool encoding = r.out.kind == SpecKind::kEncoding;
  PHASOR_RETURN_IF_ERROR(encoding ? ResolveEncoding(r) : ResolveRotary(r));
  PHASOR_RETURN_IF_ERROR(ResolveAxes(r));
  PHASOR_RETURN_IF_ERROR(ResolveAxisMap(r));
  PHASOR_RETURN_IF_ERROR(ResolvePerPair(r));
  if (!encoding) {
    PHASOR_RETURN_IF_ERROR(ResolveScaling(r));
    PHASOR_RETURN_IF_ERROR(ResolveXpos(r));
  }
  PHASOR_RETURN_IF_ERROR(ResolvePrecision(r));
  return std::move(r.out);
}

// Bytes of the list in a field.
template <typename T>
size_t ListBytes(const T&) {
  return 0;
}
template <typename T>
size_t ListBytes(const std::vector<T>& list) {
  return list.size() * sizeof(T);
}
size_t ListBytes(const RopeScaling& scaling) {
  const auto* const rule = std::get_if<LongRopeScaling>(&scaling);
  return rule == nullptr ? 0 : ListBytes(rule->short_factor) + ListBytes(rule->long_factor);
}

// The specs that a thread resolved last. Calls for one model follow one another, and reading its
// configuration takes several times as long as rotating a token. Threads: one thread.
class RecentSpecs {
 public:
  // The result for `spec`, or nullptr.
  const ResolvedSpec* Find(const Spec& spec) const {
    for (const Entry& entry : entries_) {
      if (entry.resolved.has_value() && entry.spec == spec) return &*entry.resolved;
    }
    return nullptr;
  }

  // Keeps a result, but not a large one: no memory budget counts these.
  void Keep(const Spec& spec, const ResolvedSpec& resolved) {
    size_t bytes = spec.config_json.size();
    VisitSpecFields([&](const SpecField&, auto member, auto resolved_member) {
      bytes += ListBytes(spec.*member);
      if constexpr (!std::is_same_v<decltype(resolved_member), NotResolved>) {
        bytes += ListBytes(resolved.*resolved_member);
      }
    });
    if (bytes > kMaxBytes) return;
    entries_[next_] = {spec, resolved};
    next_ = (next_ + 1) % entries_.size();
  }

 private:
  static constexpr size_t kMaxBytes = 64 << 10;
  struct Entry {
    Spec spec;
    std::optional<ResolvedSpec> resolved;
  };
  std::array<Entry, 4> entries_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<ResolvedSpec> ResolveSpec(const Spec& spec, std::string_view path) {
  thread_local RecentSpecs recent;
  if (const ResolvedSpec* const known = recent.Find(spec); known != nullptr) return *known;
  absl::StatusOr<ResolvedSpec> resolved = ResolveAnew(spec, path);
  if (resolved.ok()) recent.Keep(spec, *resolved);
  return resolved;
}

}  // namespace phasor
