// SPDX-License-Identifier: Apache-2.0
// What the steps of ResolveSpec share. Internal to kernels/spec_resolve*.cc, in the order in which
// they run. Each returns INVALID_ARGUMENT naming the field, or UNIMPLEMENTED for what is not built.
#ifndef PHASOR_KERNELS_SPEC_RESOLUTION_H_
#define PHASOR_KERNELS_SPEC_RESOLUTION_H_

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/text.h"
#include "kernels/spec/spec.h"

namespace phasor {

inline double WithoutNegativeZero(double x) { return x == 0 ? 0.0 : x; }

// One resolution. Borrows the user's spec and the path.
// Threads: one thread.
struct Resolution {
  const Spec& user;
  std::string_view path;
  Spec merged = {};  // the base with the user's fields over it
  ResolvedSpec out = {};

  template <typename... T>
  absl::Status Invalid(std::string_view field, const T&... message) const {
    return absl::InvalidArgumentError(StrCat(path, ".", field, ": ", message...));
  }
  absl::Status Missing(std::string_view field) const { return Invalid(field, "not set, required"); }
  absl::Status Unbuilt(std::string_view field, std::string_view what) const {
    return absl::UnimplementedError(StrCat(path, ".", field, ": ", what, " is not built yet"));
  }

  absl::Status CheckFinite(std::string_view field, double value) const {
    return std::isfinite(value) ? absl::OkStatus() : Invalid(field, value, ", must be finite");
  }
  absl::Status CheckPositive(std::string_view field, double value) const {
    return std::isfinite(value) && value > 0 ? absl::OkStatus()
                                             : Invalid(field, value, ", must be finite and > 0");
  }
  // Leaves *out alone when there is no value.
  absl::Status Finite(std::string_view field, const std::optional<double>& value,
                      double* result) const {
    if (!value.has_value()) return absl::OkStatus();
    *result = WithoutNegativeZero(*value);
    return CheckFinite(field, *value);
  }
  // As Finite, of a value that must be set.
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
  // Every element finite, and > 0 if `positive`; `count` of them.
  absl::Status CheckList(std::string_view field, const std::vector<double>& list, int64_t count,
                         bool positive) const {
    if (static_cast<int64_t>(list.size()) != count) {
      return Invalid(field, list.size(), " values, must be ", count);
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

absl::Status ResolveAxes(Resolution& r);      // axes, axis_rule; spec_resolve_axes.cc
absl::Status ResolveEncoding(Resolution& r);  // order to cos_bias; spec_resolve_widths.cc
absl::Status ResolveRotary(Resolution& r);    // head_dim to pairing_out; spec_resolve_widths.cc
absl::Status ResolveAxisMap(Resolution& r);   // axes_dim to axis_of_pair; spec_resolve_axes.cc
absl::Status ResolveFamily(Resolution& r);    // what the family takes; spec_resolve_frequencies.cc
absl::Status ResolvePerPair(
    Resolution& r);  // lists per pair, per axis; spec_resolve_frequencies.cc
absl::Status ResolveScaling(Resolution& r);  // rope_scaling; spec_resolve_scaling.cc
absl::Status ResolveXpos(Resolution& r);     // spec_resolve_scaling.cc

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_RESOLUTION_H_
