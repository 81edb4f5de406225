// SPDX-License-Identifier: Apache-2.0
// Parity arithmetic: the stages that are filled in, and the combinations that are refused.
#include "kernels/spec/parity_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/spec/configurations.h"
#include "tests/support/specs.h"
#include "tests/support/status_matchers.h"

namespace phasor::parity {
namespace {

using testing::Config;
using testing::Encoding;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Rotary;
using testing::With;

ParityArithmetic Llama() {
  return {ParityFrequency::kFloat32Pow,
          {},
          {},
          ParityType::kFloat32,
          ParityType::kModel,
          ParityType::kModel};
}

Spec Parity(Spec spec, const ParityArithmetic& arithmetic) {
  spec.precision = Precision::kParity;
  spec.parity = arithmetic;
  return spec;
}

void ExpectRefused(const Spec& spec, const std::string& message) {
  const auto resolved = ResolveSpec(spec);
  ASSERT_FALSE(resolved.ok());
  EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(resolved.status().message()), HasSubstr(message));
}

TEST(ParityCheckTest, ResolvedArithmeticNamesEveryStage) {
  const ResolvedSpec spec = testing::Resolve(Parity(Rotary(8), Llama()));
  EXPECT_EQ(spec.precision, Precision::kParity);
  ASSERT_TRUE(spec.parity.has_value());
  EXPECT_EQ(spec.parity->position, ParityType::kFloat32);
  EXPECT_EQ(spec.parity->frequency_storage, std::nullopt);
}

TEST(ParityCheckTest, ParityGoesThroughToSpecAndBack) {
  const ResolvedSpec spec = testing::Resolve(Parity(Rotary(8), Llama()));
  EXPECT_EQ(testing::Resolve(ToSpec(spec)), spec);
  EXPECT_NE(Fingerprint(spec), Fingerprint(testing::Resolve(Rotary(8))));
}

TEST(ParityCheckTest, RejectsParityWithoutStages) {
  ExpectRefused(With(Rotary(8), &Spec::precision, Precision::kParity),
                "spec.parity: not set; must be given for precision PARITY");
  for (const char* stage : {"frequency", "angle", "table", "math"}) {
    ParityArithmetic arithmetic = Llama();
    if (stage == std::string("frequency")) arithmetic.frequency.reset();
    if (stage == std::string("angle")) arithmetic.angle.reset();
    if (stage == std::string("table")) arithmetic.table.reset();
    if (stage == std::string("math")) arithmetic.math.reset();
    ExpectRefused(Parity(Rotary(8), arithmetic), std::string("spec.parity.") + stage + ": not set");
  }
}

TEST(ParityCheckTest, TheClassOfAConfigurationHasItsArithmetic) {
  const auto steps = [](const std::string& type, const std::string& more) {
    Spec spec = Config(R"({"model_type": ")" + type + R"(", "head_dim": 64)" + more + "}");
    spec.precision = Precision::kParity;
    return ResolveSpec(spec);
  };
  const auto llama = steps("llama", "");
  ASSERT_THAT(llama, IsOk());
  EXPECT_EQ(llama->parity->frequency, ParityFrequency::kFloat32Pow);
  EXPECT_EQ(llama->parity->math, ParityType::kModel);
  EXPECT_EQ(steps("cohere", R"(, "hidden_size": 512, "num_attention_heads": 8)")->parity->math,
            ParityType::kFloat32);
  EXPECT_FALSE(
      ResolveSpec(Config(R"({"model_type": "llama", "head_dim": 64})"))->parity.has_value())
      << "EXACT";
  Spec own = Config(R"({"model_type": "llama", "head_dim": 64})");
  own.precision = Precision::kParity;
  own.parity = llama->parity;
  own.parity->math = ParityType::kFloat32;
  EXPECT_EQ(ResolveSpec(own)->parity->math, ParityType::kFloat32) << "the spec's own";
  Spec unknown = Config(R"({"model_type": "llamas", "head_dim": 64, "rope_theta": 1e4})");
  unknown.pairing = Pairing::kHalfSplit;
  unknown.precision = Precision::kParity;
  ExpectRefused(unknown,
                "parity: not set; must be given for precision PARITY: how the class of this "
                "model_type rounds is not known");
}

TEST(ParityCheckTest, EncodingsNeedNoMath) {
  ParityArithmetic arithmetic = Llama();
  arithmetic.math.reset();
  EXPECT_EQ(testing::Resolve(Parity(Encoding(8), arithmetic)).parity->math, ParityType::kModel);
}

TEST(ParityCheckTest, RejectsStagesBesideExact) {
  ExpectRefused(With(Rotary(8), &Spec::parity, Llama()), "spec.parity: set beside precision EXACT");
}

TEST(ParityCheckTest, RejectsTheModelsTypeBeforeThereIsATensor) {
  ParityArithmetic arithmetic = Llama();
  arithmetic.angle = ParityType::kModel;
  ExpectRefused(Parity(Rotary(8), arithmetic), "spec.parity.angle: MODEL");
  arithmetic = Llama();
  arithmetic.position = ParityType::kModel;
  ExpectRefused(Parity(Rotary(8), arithmetic), "spec.parity.position: MODEL");
}

TEST(ParityCheckTest, RejectsRecipesThatNoUpstreamHas) {
  ParityArithmetic arithmetic = Llama();
  arithmetic.frequency = ParityFrequency::kGgml;
  ExpectRefused(Parity(Encoding(8), arithmetic), "GGML has no encodings");
  ExpectRefused(Parity(With(Rotary(8), &Spec::position_scale, 2.0), arithmetic),
                "GGML has no position scales");
  arithmetic.angle = ParityType::kFloat64;
  ExpectRefused(Parity(Rotary(8), arithmetic), "spec.parity.angle: FLOAT64; GGML takes FLOAT32");
  arithmetic = Llama();
  arithmetic.frequency = ParityFrequency::kFloat32Exp;
  ExpectRefused(Parity(testing::Flow(8), arithmetic), "FLOAT32_EXP makes GEOMETRIC frequencies");
}

}  // namespace
}  // namespace phasor::parity
