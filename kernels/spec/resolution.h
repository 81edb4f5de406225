// SPDX-License-Identifier: Apache-2.0
// State, checks and steps that the parts of ResolveSpec share. Internal to
// kernels/spec/resolve*.cc. The steps are declared in the order in which they run. Each returns
// INVALID_ARGUMENT with the field's path, or UNIMPLEMENTED for conventions that are not built.
#ifndef PHASOR_KERNELS_SPEC_RESOLUTION_H_
#define PHASOR_KERNELS_SPEC_RESOLUTION_H_

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/invalid.h"
#include "kernels/base/text.h"
#include "kernels/spec/spec.h"

namespace phasor {

inline double WithoutNegativeZero(double x) { return x == 0 ? 0.0 : x; }

// The state of one ResolveSpec call. Borrows the user's spec and the path.
// Threads: one thread at a time.
struct Resolution {
  const Spec& user;
  std::string_view path;
  Spec merged = {};  // the base with the user's fields merged over it
  ResolvedSpec out = {};

  template <typename... T>
  absl::Status Invalid(std::string_view field, const T&... message) const {
    return phasor::Invalid(path, ".", field, ": ", message...);
  }
  absl::Status Missing(std::string_view field) const {
    return Invalid(field, "not set; must be given");
  }

  absl::Status CheckFinite(std::string_view field, double value) const {
    return std::isfinite(value) ? absl::OkStatus() : Invalid(field, value, "; must be finite");
  }
  absl::Status CheckPositive(std::string_view field, double value) const {
    return std::isfinite(value) && value > 0 ? absl::OkStatus()
                                             : Invalid(field, value, "; must be finite and > 0");
  }
  // Stores a finite value; leaves *result unchanged when there is none.
  absl::Status Finite(std::string_view field, const std::optional<double>& value,
                      double* result) const {
    if (!value.has_value()) return absl::OkStatus();
    *result = WithoutNegativeZero(*value);
    return CheckFinite(field, *value);
  }
  // Like Finite, but the value must be set.
  absl::Status RequiredFinite(std::string_view field, const std::optional<double>& value,
                              double* result) const {
    return value.has_value() ? Finite(field, value, result) : Missing(field);
  }
  absl::Status RequiredPositive(std::string_view field, const std::optional<double>& value,
                                double* result) const {
    if (!value.has_value()) return Missing(field);
    *result = *value;
    return CheckPositive(field, *value);
  }
  // Checks that there are `count` elements, all finite, and > 0 if `positive`.
  absl::Status CheckList(std::string_view field, const std::vector<double>& list, int64_t count,
                         bool positive) const {
    if (static_cast<int64_t>(list.size()) != count) {
      return Invalid(field, list.size(), " values; must be ", count);
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string element = StrCat(field, "[", i, "]");
      absl::Status status =
          positive ? CheckPositive(element, list[i]) : CheckFinite(element, list[i]);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
};

absl::Status ResolveAxes(Resolution& r);      // axes, axis_rule; resolve_axes.cc
absl::Status ResolveEncoding(Resolution& r);  // order to cos_bias; resolve_widths.cc
absl::Status ResolveRotary(Resolution& r);    // head_dim to pairing_out; resolve_widths.cc
absl::Status ResolveAxisMap(Resolution& r);   // axes_dim to axis_of_pair; resolve_axes.cc
absl::Status ResolveFamily(Resolution& r);    // fields of the family; resolve_frequencies.cc
absl::Status ResolvePerPair(Resolution& r);   // lists per pair or axis; resolve_frequencies.cc
absl::Status ResolveScaling(Resolution& r);   // rope_scaling; resolve_scaling.cc
absl::Status ResolveXpos(Resolution& r);      // resolve_scaling.cc

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_RESOLUTION_H_
