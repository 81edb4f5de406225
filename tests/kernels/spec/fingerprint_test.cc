// SPDX-License-Identifier: Apache-2.0
// Fingerprints are the same across releases and differ for different specs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/spec/spec.h"
#include "tests/support/specs.h"

namespace phasor {
namespace {

using testing::Encoding;
using testing::Flow;
using testing::PresetSpec;
using testing::Resolve;
using testing::Rotary;
using testing::With;

TEST(FingerprintTest, IsStableAcrossReleases) {
  EXPECT_EQ(Fingerprint(Resolve(Encoding(512))), "ff4b924dacf0a1b79c0d74da7a85937a");
  EXPECT_EQ(Fingerprint(Resolve(PresetSpec("llama-3"))), "9d997e15d7e337d096ac501343dae0fa");
  EXPECT_EQ(Fingerprint(Resolve(PresetSpec("flux"))), "e06940de644c512317e49d84cd052b80");
  EXPECT_EQ(Fingerprint(Resolve(Flow(32))), "f5db420b4917a54521f92600c6d7649d");
}

TEST(FingerprintTest, ChangesWithEveryField) {
  std::vector<std::string> seen = {Fingerprint(Resolve(Rotary(64)))};
  const auto expect_new = [&](const Spec& spec) {
    const std::string fingerprint = Fingerprint(Resolve(spec));
    EXPECT_EQ(fingerprint.size(), 32u);
    EXPECT_THAT(seen, ::testing::Not(::testing::Contains(fingerprint)));
    seen.push_back(fingerprint);
  };
  expect_new(Rotary(66));
  expect_new(With(Rotary(64), &Spec::rotary_dim, 62));
  expect_new(With(With(Rotary(64), &Spec::rotary_dim, 62), &Spec::rotary_begin, 2));
  expect_new(With(Rotary(64), &Spec::rope_theta, 10001.0));
  expect_new(With(Rotary(64), &Spec::downscale_freq_shift, 1.0));
  expect_new(With(Rotary(64), &Spec::position_scale, -1.0));
  expect_new(With(Rotary(64), &Spec::attention_factor, 1.5));
  expect_new(With(Rotary(64), &Spec::pairing, Pairing::kInterleaved));
  expect_new(With(Rotary(64), &Spec::pairing_out, Pairing::kInterleaved));
  expect_new(With(Rotary(64), &Spec::axes, 2));
  expect_new(With(Rotary(64), &Spec::axes_dim, {30, 34}));
  expect_new(With(Rotary(64), &Spec::axes_dim, {34, 30}));
  expect_new(Encoding(64));
  expect_new(With(Encoding(65), &Spec::pad_back, 1));
  expect_new(With(Encoding(64), &Spec::order, TrigOrder::kCosSin));
  expect_new(With(Encoding(64), &Spec::arrangement, Arrangement::kConcatenated));
  expect_new(With(PresetSpec("grid-2d-sum"), &Spec::dim, 64));
  expect_new(With(PresetSpec("timm-2d"), &Spec::dim, 64));
  expect_new(Flow(64));
  expect_new(With(Flow(64), &Spec::min_period, 1e-3));
  expect_new(With(Flow(64), &Spec::max_period, 8.0));
  expect_new(With(Flow(64), &Spec::family, FrequencyFamily::kPeriodsExclusive));
  expect_new(With(PresetSpec("transformer-literal"), &Spec::dim, 64));
  for (const Spec& spec : testing::SpecsOfEveryField()) expect_new(spec);
}

}  // namespace
}  // namespace phasor
