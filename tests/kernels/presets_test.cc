// SPDX-License-Identifier: Apache-2.0
// Every preset is complete once its required fields are set. conventions_test.cc has their numbers.
#include "kernels/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/plan.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

// The preset with its required fields filled in.
Spec Complete(const Preset& preset) {
  Spec spec;
  spec.preset = preset.name;
  for (const std::string& field : preset.required_fields) {
    if (field == "dim") spec.dim = 24;
    if (field == "head_dim") spec.head_dim = 96;
    if (field == "axes_dim") spec.axes_dim = {32, 48, 16};
  }
  return spec;
}

TEST(PresetsTest, AreInAlphabeticalOrderWithDistinctNames) {
  const auto presets = Presets();
  ASSERT_GE(presets.size(), 17u);
  for (size_t i = 1; i < presets.size(); ++i) EXPECT_LT(presets[i - 1].name, presets[i].name);
}

TEST(PresetsTest, AreFoundByNameAndOnlyByName) {
  for (const Preset& preset : Presets()) EXPECT_EQ(FindPreset(preset.name), &preset);
  for (const char* name : {"", "Flux", "flu", "fluxx", "zzz", "\xff"})
    EXPECT_EQ(FindPreset(name), nullptr) << name;
}

TEST(PresetsTest, CompileOnceTheirRequiredFieldsAreSet) {
  for (const Preset& preset : Presets()) {
    const auto resolved = ResolveSpec(Complete(preset));
    ASSERT_THAT(resolved, IsOk()) << preset.name;
    EXPECT_THAT(CompilePlan(*resolved), IsOk()) << preset.name;
  }
}

TEST(PresetsTest, RequireExactlyTheFieldsTheyList) {
  for (const Preset& preset : Presets()) {
    for (const std::string& field : preset.required_fields) {
      Spec spec = Complete(preset);
      if (field == "dim") spec.dim.reset();
      if (field == "head_dim") spec.head_dim.reset();
      if (field == "axes_dim") {
        spec.axes_dim.clear();
        spec.head_dim = 128;  // not a multiple of three pairs
      }
      EXPECT_THAT(ResolveSpec(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)))
          << preset.name << " without " << field;
    }
  }
}

TEST(PresetsTest, SayWhatTheyAreAndWhereTheyComeFrom) {
  for (const Preset& preset : Presets()) {
    EXPECT_FALSE(preset.summary.empty()) << preset.name;
    EXPECT_EQ(preset.summary.find('\n'), std::string::npos) << preset.name;
    EXPECT_FALSE(preset.source.empty()) << preset.name;
    EXPECT_TRUE(preset.spec.preset.empty()) << preset.name;
  }
}

TEST(PresetsTest, DifferFromEachOtherInMeaning) {
  std::vector<std::string> fingerprints;
  for (const Preset& preset : Presets()) {
    if (preset.name == "tensor2tensor") continue;  // ddpm-timestep, for sequences
    fingerprints.push_back(Fingerprint(*ResolveSpec(Complete(preset))));
  }
  std::sort(fingerprints.begin(), fingerprints.end());
  EXPECT_EQ(std::adjacent_find(fingerprints.begin(), fingerprints.end()), fingerprints.end());
}

}  // namespace
}  // namespace phasor
