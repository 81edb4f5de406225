// SPDX-License-Identifier: Apache-2.0
// Jobs in an upstream's arithmetic: roundings calculated by hand, and the same bytes on every
// backend. tests/conformance/parity_test.cc compares with the upstream packages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/specs.h"
#include "tests/support/tensors.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::SameBits;
using testing::Tensor;

Spec Parity(Spec spec, ParityType table = ParityType::kModel, ParityType math = ParityType::kModel,
            ParityFrequency frequency = ParityFrequency::kFloat32Pow) {
  spec.precision = Precision::kParity;
  spec.parity = ParityArithmetic{frequency, {}, {}, ParityType::kFloat32, table, math};
  return spec;
}

// Rotates `heads` heads of x at positions start, start + 1, ...
Tensor Rotate(const Spec& spec, const Tensor& x, int64_t tokens, int64_t heads, int64_t start,
              Backend& backend, Direction direction = Direction::kForward, bool in_place = false) {
  RopeRequest request;
  request.spec = spec;
  request.positions = IntegerRange{start, 1, tokens};
  request.tensors = {{x.dtype(), {tokens, heads, x.count() / tokens / heads}, {}}};
  request.direction = direction;
  auto prepared = PrepareRope(request, CompilePlan, "item");
  EXPECT_THAT(prepared, testing::IsOk());
  Tensor y = x;
  const std::byte* const from[] = {in_place ? y.data() : x.data()};
  std::byte* const to[] = {y.data()};
  const Job jobs[] = {MakeRotaryJob(*prepared, from, to)};
  EXPECT_THAT(backend.Run(jobs), testing::IsOk());
  EXPECT_TRUE(y.GuardsIntact());
  return y;
}

Backend& Reference() {
  static Backend* const backend = cpu::MakeCpuBackend({cpu::Target::kScalar, 1}).release();
  return *backend;
}

float BFloat16(float x) { return FloatFromBFloat16(BFloat16FromFloat(x)); }

TEST(ParityTest, EveryProductAndSumIsRoundedToTheModelsType) {
  Tensor x(Dtype::kBFloat16, 2);
  x.Set(0, 1.2421875);
  x.Set(1, -0.6640625);
  const Tensor y = Rotate(Parity(testing::Rotary(2)), x, 1, 1, 3, Reference());
  const float c = BFloat16(static_cast<float>(std::cos(3.0)));
  const float s = BFloat16(static_cast<float>(std::sin(3.0)));
  const float x1 = static_cast<float>(x[0]);
  const float x2 = static_cast<float>(x[1]);
  EXPECT_EQ(y[0], BFloat16(BFloat16(x1 * c) + BFloat16(-x2 * s)));
  EXPECT_EQ(y[1], BFloat16(BFloat16(x2 * c) + BFloat16(x1 * s)));
}

TEST(ParityTest, F32MathRoundsTheResultOnceToTheModelsType) {
  Tensor x(Dtype::kBFloat16, 2);
  x.Set(0, 1.2421875);
  x.Set(1, -0.6640625);
  const Spec spec = Parity(testing::Rotary(2), ParityType::kFloat32, ParityType::kFloat32);
  const Tensor y = Rotate(spec, x, 1, 1, 3, Reference());
  const float c = static_cast<float>(std::cos(3.0));
  const float s = static_cast<float>(std::sin(3.0));
  const float x1 = static_cast<float>(x[0]);
  const float x2 = static_cast<float>(x[1]);
  const float products[] = {x1 * c, x2 * s, x2 * c, x1 * s};
  EXPECT_EQ(y[0], BFloat16(products[0] - products[1]));
  EXPECT_EQ(y[1], BFloat16(products[2] + products[3]));
}

TEST(ParityTest, EveryBackendReturnsTheSameBytes) {
  for (const ParityFrequency frequency :
       {ParityFrequency::kFloat32Pow, ParityFrequency::kFloat64, ParityFrequency::kGgml}) {
    for (const Dtype dtype : {Dtype::kBFloat16, Dtype::kFloat16, Dtype::kFloat32}) {
      const Spec spec =
          Parity(testing::Rotary(64), ParityType::kModel, ParityType::kModel, frequency);
      Tensor x(dtype, 400 * 3 * 64, 3);
      x.Fill(5);
      const Tensor want = Rotate(spec, x, 400, 3, 100000, Reference());
      for (const auto& [name, backend] : testing::AllBackends()) {
        EXPECT_TRUE(SameBits(Rotate(spec, x, 400, 3, 100000, *backend), want)) << name;
      }
    }
  }
}

TEST(ParityTest, PairingsMayDifferInPlaceAndOtherLanesStay) {
  Spec spec = Parity(testing::Rotary(12));
  spec.rotary_begin = 2;
  spec.rotary_dim = 8;
  spec.pairing = Pairing::kInterleaved;
  spec.pairing_out = Pairing::kHalfSplit;
  Tensor x(Dtype::kFloat32, 5 * 2 * 12);
  x.Fill(9);
  const Tensor apart = Rotate(spec, x, 5, 2, 7, Reference());
  EXPECT_TRUE(SameBits(
      Rotate(spec, x, 5, 2, 7, Reference(), Direction::kForward, /*in_place=*/true), apart));
  for (const int64_t lane : {0, 1, 10, 11}) EXPECT_EQ(apart[lane], x[lane]);
}

TEST(ParityTest, InverseUndoesAngleAndAmplitude) {
  Spec spec = Parity(testing::Rotary(16));
  spec.attention_factor = 1.25;
  Tensor x(Dtype::kFloat32, 3 * 16);
  x.Fill(1);
  const Tensor y = Rotate(spec, x, 3, 1, 1000, Reference());
  const Tensor back = Rotate(spec, y, 3, 1, 1000, Reference(), Direction::kInverse);
  for (int64_t i = 0; i < x.count(); ++i) EXPECT_NEAR(back[i], x[i], 1e-6);
}

TEST(ParityTest, RejectsDeltas) {
  RopeRequest request;
  request.spec = Parity(testing::Rotary(8));
  request.positions = IntegerRange{0, 1, 1};
  request.from_positions = IntegerRange{5, 1, 1};
  request.tensors = {{Dtype::kFloat32, {1, 1, 8}, {}}};
  request.direction = Direction::kDelta;
  const auto prepared = PrepareRope(request, CompilePlan, "item");
  ASSERT_FALSE(prepared.ok());
  EXPECT_EQ(prepared.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(prepared.status().message()),
      HasSubstr("item.from_spec.precision: PARITY, no upstream turns keys by a difference"));
}

TEST(ParityTest, AddedEmbeddingsAreScaledAndSummedInTheModelsType) {
  EncodeRequest request;
  request.spec = Parity(testing::Encoding(2), ParityType::kFloat32);
  request.positions = IntegerRange{2, 1, 1};
  request.output_dtype = Dtype::kBFloat16;
  request.add_to = TensorDesc{Dtype::kBFloat16, {1, 2}, {}};
  request.embedding_scale = 1.7;
  auto prepared = PrepareEncode(request, CompilePlan, "item");
  ASSERT_THAT(prepared, testing::IsOk());
  Tensor add_to(Dtype::kBFloat16, 2);
  add_to.Fill(4);
  Tensor out(Dtype::kBFloat16, 2);
  for (const auto& [name, backend] : testing::AllBackends()) {
    const Job jobs[] = {MakeEncodeJob(*prepared, add_to.data(), out.data())};
    ASSERT_THAT(backend->Run(jobs), testing::IsOk());
    const float scale = BFloat16(1.7f);
    const float sine = BFloat16(static_cast<float>(std::sin(2.0)));
    EXPECT_EQ(out[0], BFloat16(BFloat16(scale * static_cast<float>(add_to[0])) + sine)) << name;
  }
}

}  // namespace
}  // namespace phasor
