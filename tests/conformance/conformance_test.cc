// SPDX-License-Identifier: Apache-2.0
// Compares Phasor with golden values. They are numbers of upstream packages and of 300-bit
// arithmetic, never of Phasor.
//
// PHASOR_CONFORMANCE_GOLDEN names another folder of golden values. PHASOR_CONFORMANCE_ROWS names a
// file that gets one line per case and arithmetic, which ./dev conformance prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "kernels/base/text.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/presets.h"
#include "tests/conformance/golden.h"
#include "tests/conformance/measure.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::Difference;
using testing::GoldenCase;
using testing::Integer;
using testing::Real;
using testing::Samples;
using testing::SpecFromJson;

std::string Environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

const std::vector<GoldenCase>& Cases() {
  static const auto& cases = *new std::vector<GoldenCase>(testing::ReadGoldenCases(
      Environment("PHASOR_CONFORMANCE_GOLDEN", PHASOR_CONFORMANCE_FOLDER "/golden")));
  return cases;
}

void WriteRow(const GoldenCase& golden, const std::string& arithmetic, const std::string& result,
              const std::string& difference) {
  const std::string path = Environment("PHASOR_CONFORMANCE_ROWS", "");
  if (path.empty()) return;
  std::ofstream(path, std::ios::app) << golden.name << '\t' << golden.preset << '\t' << arithmetic
                                     << '\t' << result << '\t' << difference << '\n';
}

class ConformanceTest : public ::testing::TestWithParam<size_t> {
 protected:
  const GoldenCase& golden() const { return Cases()[GetParam()]; }

  // Whether `status` ends the test, which fails then.
  bool Stops(const std::string& what, const absl::Status& status) {
    if (status.ok()) return false;
    WriteRow(golden(), what, "FAIL", status.ToString());
    ADD_FAILURE() << status;
    return true;
  }

  void Check(const std::string& what, const Difference& difference, const std::string& unit) {
    const bool passes = difference.largest_share <= 1;
    WriteRow(golden(), what, passes ? "PASS" : "FAIL", StrCat(difference.largest, unit));
    EXPECT_TRUE(passes) << difference.where << ", allowed " << difference.allowed << ", "
                        << golden().upstream;
  }
};

TEST_P(ConformanceTest, ExactResultsKeepTheContract) {
  const auto spec = SpecFromJson(golden().spec);
  if (Stops("exact", spec.status())) return;
  const auto samples = testing::Compute(golden(), *spec, Dtype::kFloat64);
  if (Stops("exact", samples.status())) return;
  Check("exact", testing::FromTruth(golden(), *spec, *samples), "");
}

// Frequencies within one unit of 2^-64 turns, and the axis of every pair.
TEST_P(ConformanceTest, PlansHaveTheTrueFrequencies) {
  if (!golden().output.empty() || golden().encoding || golden().inv_freq.empty()) {
    return;  // their rows show it
  }
  const auto spec = SpecFromJson(golden().spec);
  const auto resolved = spec.ok() ? ResolveSpec(*spec) : spec.status();
  if (Stops("exact", resolved.status())) return;
  const auto plan = CompilePlan(*resolved);
  ASSERT_THAT(plan, testing::IsOk());
  ASSERT_EQ((*plan)->pairs, golden().pairs);
  for (size_t i = 0; i < golden().frequency_pairs.size(); ++i) {
    const int64_t pair = golden().frequency_pairs[i];
    const Frequency got = (*plan)->frequency[pair];
    const Integer distance = testing::ToFixed(got.whole, got.fraction) -
                             testing::RoundToFixed(golden().inv_freq[i] / testing::TwoPi());
    EXPECT_LE(abs(distance), 1) << "pair " << pair;
    EXPECT_EQ((*plan)->axis[pair], golden().axis[i]) << "pair " << pair;
  }
}

TEST_P(ConformanceTest, PresetMeansWhatItsSourceSays) {
  if (golden().preset.empty()) return;
  auto given = SpecFromJson(golden().given);
  const auto spec = SpecFromJson(golden().spec);
  if (Stops("preset", given.status())) return;
  if (Stops("preset", spec.status())) return;
  given->preset = golden().preset;
  const auto by_name = ResolveSpec(*given);
  if (Stops("preset", by_name.status())) return;
  const auto in_full = ResolveSpec(*spec);
  ASSERT_THAT(in_full, testing::IsOk());
  EXPECT_EQ(Fingerprint(*by_name), Fingerprint(*in_full));
}

// Upstream's own arithmetic: its tables to one unit in the last place but for pairs whose frequency
// comes out of another libm, and its rotations.
TEST_P(ConformanceTest, ParityEqualsUpstream) {
  const Preset* const preset = FindPreset(golden().preset);
  if (preset == nullptr || !preset->spec.parity.has_value()) return;
  auto spec = SpecFromJson(golden().given);
  if (Stops("parity", spec.status())) return;
  spec->preset = golden().preset;
  spec->precision = Precision::kParity;
  const auto samples = testing::Compute(golden(), *spec, Dtype::kFloat32);
  if (Stops("parity", samples.status())) return;
  const Difference difference = testing::FromUpstream(golden(), *samples);
  Check("parity", difference, " ulp");
  EXPECT_GE(difference.close, difference.count * 2 / 3) << difference.where;
  for (const GoldenCase::Rotated& upstream : golden().upstream_rotated) {
    const auto rotation = testing::FromUpstreamRotation(golden(), *spec, upstream);
    ASSERT_THAT(rotation, testing::IsOk());
    EXPECT_LE(rotation->largest_share, 1) << rotation->where;
  }
}

std::string CaseName(const ::testing::TestParamInfo<size_t>& info) {
  std::string name = Cases()[info.param].name;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden, ConformanceTest, ::testing::Range<size_t>(0, Cases().size()),
                         CaseName);

TEST(ConformanceListTest, EveryPresetHasGoldenValues) {
  std::set<std::string> covered;
  for (const GoldenCase& golden : Cases()) covered.insert(golden.preset);
  for (const Preset& preset : Presets()) {
    EXPECT_TRUE(covered.count(preset.name)) << preset.name << " has no case in tests/conformance";
  }
}

// But for definitions, which nobody's program is the measure of.
TEST(ConformanceListTest, EveryPresetNamesItsUpstreamsArithmetic) {
  for (const Preset& preset : Presets()) {
    const bool definition = preset.note.find("a definition") != std::string::npos ||
                            preset.note.find("no installed package") != std::string::npos;
    EXPECT_NE(preset.spec.parity.has_value(), definition) << preset.name;
  }
}

}  // namespace
}  // namespace phasor
