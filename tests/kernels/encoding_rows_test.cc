// SPDX-License-Identifier: Apache-2.0
// Pictures of the rows of encoding specs, and the numbers in rows with odd widths or biases.
#include <gtest/gtest.h>

#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/draw.h"
#include "tests/support/plans.h"
#include "tests/support/specs.h"
#include "tests/support/tensors.h"
#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::Draw;
using testing::PlanOf;
using testing::Real;
using testing::Resolve;
using testing::Tensor;

Spec Concatenated(int64_t dim) {
  Spec spec = testing::Encoding(dim);
  spec.arrangement = Arrangement::kConcatenated;
  return spec;
}

std::string DrawSpec(const Spec& spec) { return Draw(PlanOf(spec)->layout); }

TEST(EncodingRowsTest, DrawsOrdersAndArrangements) {
  EXPECT_EQ(DrawSpec(testing::Encoding(4)), "s0 c0 s1 c1");
  EXPECT_EQ(DrawSpec(Concatenated(4)), "s0 s1 c0 c1");
  Spec spec = Concatenated(5);
  spec.order = TrigOrder::kCosOnly;
  EXPECT_EQ(DrawSpec(spec), "c0 c1 c2 c3 c4");
}

TEST(EncodingRowsTest, GivesTheFirstComponentTheOddColumn) {
  Spec spec = Concatenated(5);
  spec.odd_dim = OddDim::kSplit;
  EXPECT_EQ(DrawSpec(spec), "s0 s1 s2 c0 c1");
  spec.order = TrigOrder::kCosSin;
  EXPECT_EQ(DrawSpec(spec), "c0 c1 c2 s0 s1");
  spec.arrangement = Arrangement::kInterleaved;
  EXPECT_EQ(DrawSpec(spec), "c0 s0 c1 s1 c2");
}

TEST(EncodingRowsTest, PadsOnBothSides) {
  Spec spec = Concatenated(7);
  spec.pad_front = 2;
  spec.pad_back = 1;
  EXPECT_EQ(DrawSpec(spec), "0 0 s0 s1 c0 c1 0");
  spec.dim = 11;
  spec.axes = 2;
  EXPECT_EQ(DrawSpec(spec), "0 0 s0 s1 c0 c1 s2 s3 c2 c3 0");
  spec.grouping = AxisGrouping::kComponentMajor;
  EXPECT_EQ(DrawSpec(spec), "0 0 s0 s1 s2 s3 c0 c1 c2 c3 0");
}

TEST(EncodingRowsTest, DividesByHalfOfAnOddWidth) {
  Spec spec = Concatenated(5);
  spec.odd_dim = OddDim::kSplit;
  const auto plan = PlanOf(spec);
  for (int64_t j = 0; j < 3; ++j) {
    const Real turns = testing::GeometricTurns(Real(1), 10000.0, Real(2 * j) / 5);
    EXPECT_EQ(testing::ToFixed(plan->frequency[j].whole, plan->frequency[j].fraction),
              testing::RoundToFixed(turns));
  }
}

TEST(EncodingRowsTest, CountsEveryColumnOfCosinesAlone) {
  Spec spec = Concatenated(5);
  spec.order = TrigOrder::kCosOnly;
  const auto plan = PlanOf(spec);
  const Real turns = testing::GeometricTurns(Real(1), 10000.0, Real(4) / 5);
  EXPECT_EQ(testing::ToFixed(plan->frequency[4].whole, plan->frequency[4].fraction),
            testing::RoundToFixed(turns));
}

Tensor Encode(Backend& backend, const Spec& spec, Dtype dtype) {
  EncodeRequest request;
  request.spec = spec;
  request.positions = AxisRange{IntegerRange{0, 131, 9}};
  request.output_dtype = dtype;
  const auto prepared = PrepareEncode(request, CompilePlan, "item");
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  Tensor out(dtype, prepared->output_bytes / SizeOf(dtype));
  const Job jobs[] = {MakeEncodeJob(*prepared, nullptr, out.data())};
  EXPECT_TRUE(backend.Run(jobs).ok());
  return out;
}

TEST(EncodingRowsTest, ScalesThenBiasesOnEveryBackend) {
  Spec spec = testing::Encoding(23);
  spec.pad_front = 1;
  spec.attention_factor = 1.4142135623730951;
  spec.cos_bias = -1;
  const auto backends = testing::AllBackends();
  const Tensor want = Encode(*backends[0].backend, spec, Dtype::kFloat64);
  for (int64_t p = 0; p < 9; ++p) {
    for (int64_t j = 0; j < 11; ++j) {
      const Real turns = testing::GeometricTurns(Real(131 * p), 10000.0, Real(j) / 11);
      const double sin = static_cast<double>(testing::TrueSinTurns(turns));
      const double cos = static_cast<double>(testing::TrueCosTurns(turns));
      EXPECT_NEAR(want[p * 23 + 1 + 2 * j], 1.4142135623730951 * sin, 2e-15);
      EXPECT_NEAR(want[p * 23 + 2 + 2 * j], 1.4142135623730951 * cos - 1, 2e-15);
    }
    EXPECT_EQ(want[p * 23], 0);
  }
  for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kBFloat16}) {
    const Tensor first = Encode(*backends[0].backend, spec, dtype);
    for (const auto& b : backends) {
      EXPECT_TRUE(testing::SameBits(first, Encode(*b.backend, spec, dtype))) << b.name;
    }
  }
}

}  // namespace
}  // namespace phasor
