// SPDX-License-Identifier: Apache-2.0
// Language models have sections of their pairs; image and video models share heads among axes.
#include "kernels/spec/config_axes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/base/invalid.h"
#include "kernels/base/text.h"

namespace phasor {
namespace {

// How many lanes rotate where the user says it, or else the whole head.
int64_t LadderWidth(const Spec& user, int64_t head_dim) {
  if (user.rotary_dim.has_value()) return *user.rotary_dim;
  return static_cast<int64_t>(static_cast<double>(head_dim) *
                              user.partial_rotary_factor.value_or(1));
}

// Positions of each axis where the pairs of one ladder go to the axes in turn: every axis begins a
// step of the ladder after the one before it.
std::vector<double> StepsBetweenAxes(double theta, int64_t width, int axes) {
  std::vector<double> scale;
  for (int axis = 0; axis < axes; ++axis) {
    const double exponent = -2.0 * static_cast<double>(axis) / static_cast<double>(width);
    scale.push_back(std::pow(theta, exponent));
  }
  return scale;
}

// Axes of image and video models have equal shares of the head, or take its pairs in turn.
absl::Status ReadImageAxes(const ConfigSection& section, const Spec& user, Spec* out) {
  const ConfigModel& model = section.model();
  const int axes = static_cast<int>(model.axes.size());
  out->axes = axes;
  out->axis_rule = *model.axis_rule;
  const int64_t head_dim = *out->head_dim;
  int64_t lanes = head_dim;
  if (out->partial_rotary_factor.has_value()) {
    lanes = static_cast<int64_t>(static_cast<double>(head_dim) * *out->partial_rotary_factor);
  }
  if (*model.axis_rule == AxisRule::kList) {
    for (int64_t j = 0; j < lanes / 2; ++j) {
      out->axis_of_pair.push_back(static_cast<int>(j % axes));
    }
  }
  if (*model.axis_rule != AxisRule::kAxial) return absl::OkStatus();
  const int64_t share = lanes / axes / 2 * 2;
  if (share < 2) {
    return InvalidAt(section.in.PathOf("head_dim"), head_dim, " is too narrow for ", axes, " axes");
  }
  if (share * axes != head_dim) {
    out->partial_rotary_factor.reset();
    out->rotary_dim = share * axes;
  }
  if (!model.dealt) return absl::OkStatus();
  out->axes_position_scale = StepsBetweenAxes(user.rope_theta.value_or(*out->rope_theta),
                                              LadderWidth(user, head_dim), axes);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadConfigAxes(const ConfigSection& section, const ConfigRope& rope, const Spec& user,
                            std::string_view spec_path, Spec* out) {
  const ConfigModel& model = section.model();
  const bool generic = section.known == nullptr;
  if (model.vision()) return ReadImageAxes(section, user, out);
  const std::optional<AxisRule> rule = generic ? user.axis_rule : model.axis_rule;
  const auto& sections = rope.mrope_section.empty() ? model.mrope_section : rope.mrope_section;
  if (sections.empty()) return absl::OkStatus();
  if (!rule.has_value() && !generic) {
    return InvalidAt(section.in.PathOf("rope_parameters.mrope_section"), "model_type ",
                     model.model_type, " has one axis; must not be set");
  }
  if (!rule.has_value()) {
    return Invalid(spec_path,
                   ".axis_rule: not set; must be given beside mrope_section where the model_type "
                   "is not known");
  }
  const bool interleaved = *rule == AxisRule::kMropeInterleaved;
  if (rope.mrope_interleaved.value_or(interleaved) != interleaved) {
    return InvalidAt(section.in.PathOf("rope_parameters.mrope_interleaved"),
                     *rope.mrope_interleaved ? "true" : "false", "; must be ",
                     interleaved ? "true" : "false", " for this model");
  }
  out->axes = static_cast<int>(std::min<size_t>(sections.size(), kMaxAxes + 1));
  out->axis_rule = *rule;
  out->mrope_section = sections;
  return absl::OkStatus();
}

}  // namespace phasor
