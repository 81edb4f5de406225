// SPDX-License-Identifier: Apache-2.0
// Computations beyond one shared ladder: tables in every layout, dense and per-head frequencies,
// xPos, padding and biases. Every backend returns the reference's bytes, and the reference is close
// to the exact values.
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "kernels/request/request.h"
#include "kernels/spec/names.h"
#include "tests/support/backends.h"
#include "tests/support/direct.h"
#include "tests/support/hand_plans.h"
#include "tests/support/plans.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"
#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::AllBackends;
using testing::HandPlan;
using testing::kFloatDtypes;
using testing::MakeHandPlan;
using testing::Real;
using testing::SameBits;
using testing::SourceOf;
using testing::Tensor;

// Integers with a constant step, and real numbers.
std::vector<PositionSource> FewPlaces(int axes) {
  if (axes == 1) {
    return {SourceOf(AxisRange{IntegerRange{-3, 5, 41}}, 1),
            SourceOf(AxisRange{RealRange{0.75, 1.125, 19}}, 1)};
  }
  PositionGrid integers, mixed;
  for (int a = 0; a < axes; ++a) {
    integers.axes.push_back(IntegerRange{a - 1, 1, a == 0 ? 5 : 3});
    mixed.axes.push_back(a == 0 ? AxisRange{IntegerRange{4, 3, 3}}
                                : AxisRange{RealRange{-0.5, 0.25, 4}});
  }
  return {SourceOf(integers, axes), SourceOf(mixed, axes)};
}

// The coordinates of each position.
std::vector<std::vector<Position>> Read(const PositionSource& source) {
  std::vector<Position> all(source.count() * source.axes);
  ReadPositions(source, 0, source.count(), all.data());
  std::vector<std::vector<Position>> rows;
  for (int64_t t = 0; t < source.count(); ++t) {
    rows.emplace_back(all.begin() + t * source.axes, all.begin() + (t + 1) * source.axes);
  }
  return rows;
}

// Encode ------------------------------------------------------------------------------------------

Tensor Encode(Backend& backend, const Plan& plan, const RowLayout& layout,
              const PositionSource& positions, Dtype dtype, const Tensor* add_to = nullptr) {
  Tensor out(dtype, positions.count() * layout.width, positions.count() % 2 * SizeOf(dtype));
  EncodeJob job;
  job.plan = &plan;
  job.layout = &layout;
  job.positions = &positions;
  job.dtype = dtype;
  job.out = out.data();
  job.out_row_bytes = layout.width * SizeOf(dtype);
  if (add_to != nullptr) {
    job.add_to = add_to->data();
    job.add_to_row_bytes = job.out_row_bytes;
    job.embedding_scale = 3.25;
  }
  const Job jobs[] = {job};
  EXPECT_TRUE(backend.Run(jobs).ok());
  EXPECT_TRUE(out.GuardsIntact());
  return out;
}

void ExpectSameRowsOnAll(const std::vector<testing::NamedBackend>& backends, const Plan& plan,
                         const RowLayout& layout, const std::string& what) {
  for (const PositionSource& positions : FewPlaces(plan.spec.axes)) {
    for (const Dtype dtype : kFloatDtypes) {
      const Tensor want = Encode(*backends[0].backend, plan, layout, positions, dtype);
      for (size_t b = 1; b < backends.size(); ++b) {
        ASSERT_TRUE(SameBits(want, Encode(*backends[b].backend, plan, layout, positions, dtype)))
            << backends[b].name << " " << Name(dtype) << " " << what;
      }
    }
  }
}

std::vector<EncodeOutput> Tables() {
  std::vector<EncodeOutput> tables;
  for (int i = 1; i <= static_cast<int>(EncodeOutput::kSinRepeated); ++i) {
    tables.push_back(static_cast<EncodeOutput>(i));
  }
  return tables;
}

TEST(TableTest, EveryBackendReturnsTheReferencesBytes) {
  const auto backends = AllBackends();
  for (const int64_t pairs : {1, 3, 8, 15, 16, 17, 33, 64, 512}) {
    for (const double amplitude : {1.0, 1.1875}) {
      const auto plan = MakeHandPlan({.pairs = pairs, .amplitude = amplitude});
      for (const EncodeOutput output : Tables()) {
        ExpectSameRowsOnAll(backends, *plan, TableLayout(output, testing::PairsOf(*plan)),
                            StrCat("output ", static_cast<int>(output), " pairs ", pairs));
      }
    }
  }
}

TEST(TableTest, OfSeveralAxesAndHeadsIsTheSameOnEveryBackend) {
  const auto backends = AllBackends();
  for (const bool dense : {false, true}) {
    for (const int axes : {2, 3}) {
      for (const int64_t heads : {1, 3}) {
        const auto plan = MakeHandPlan(
            {.pairs = 13, .heads = heads, .axes = axes, .dense = dense, .offsets = dense});
        for (const EncodeOutput output : Tables()) {
          ExpectSameRowsOnAll(backends, *plan, TableLayout(output, testing::PairsOf(*plan)),
                              StrCat("output ", static_cast<int>(output), " heads ", heads));
        }
      }
    }
  }
}

TEST(TableTest, CarriesXposOnEveryBackend) {
  const auto backends = AllBackends();
  for (const bool inverse : {false, true}) {
    const auto plan =
        MakeHandPlan({.pairs = 21, .xpos = true, .xpos_inverse = inverse, .amplitude = 1.25});
    for (const EncodeOutput output : Tables()) {
      ExpectSameRowsOnAll(backends, *plan, TableLayout(output, testing::PairsOf(*plan)),
                          StrCat("output ", static_cast<int>(output)));
    }
  }
}

TEST(TableTest, ReferenceReadsLayoutsLiterally) {
  const auto backend = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  for (const bool dense : {false, true}) {
    const auto plan =
        MakeHandPlan({.pairs = 5, .heads = 2, .axes = 2, .dense = dense, .amplitude = 1.5});
    for (const EncodeOutput output : Tables()) {
      const RowLayout layout = TableLayout(output, testing::PairsOf(*plan));
      for (const PositionSource& positions : FewPlaces(2)) {
        const Tensor got = Encode(*backend, *plan, layout, positions, Dtype::kFloat64);
        const auto at = Read(positions);
        for (size_t t = 0; t < at.size(); ++t) {
          const auto want = testing::EncodeRow(*plan, layout, at[t]);
          for (int64_t c = 0; c < layout.width; ++c) {
            ASSERT_NEAR(got[t * layout.width + c], want[c], 1e-15);
          }
        }
      }
    }
  }
}

// Sums of phases are exact, so only the shared rounding of the frequencies remains.
TEST(TableTest, OfDenseFrequenciesIsNearTheTruth) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  const auto plan = MakeHandPlan({.pairs = 16, .axes = 3, .dense = true, .offsets = true});
  const RowLayout layout = TableLayout(EncodeOutput::kCosSin, testing::PairsOf(*plan));
  for (const PositionSource& positions : FewPlaces(3)) {
    const Tensor got = Encode(*backend, *plan, layout, positions, Dtype::kFloat32);
    const auto at = Read(positions);
    for (size_t t = 0; t < at.size(); ++t) {
      for (int64_t j = 0; j < plan->pairs; ++j) {
        Real turns = testing::PhaseToTurns(plan->offset[j]);
        for (int a = 0; a < 3; ++a) {
          turns +=
              testing::ToReal(at[t][a]) * testing::ToReal(plan->frequency[a * plan->pairs + j]);
        }
        const Real cos = testing::TrueCosTurns(turns), sin = testing::TrueSinTurns(turns);
        const auto cos_got = static_cast<float>(got[t * layout.width + j]);
        const auto sin_got = static_cast<float>(got[t * layout.width + plan->pairs + j]);
        ASSERT_LE(testing::UlpError(cos_got, cos), testing::kEncode32Ulp + 0.001);
        ASSERT_LE(testing::UlpError(sin_got, sin), testing::kEncode32Ulp + 0.001);
      }
    }
  }
}

// What encodings can ask for: only cosines, biases, padding on both sides, sums.
TEST(LayoutTest, PaddingBiasAndSumsAreTheSameOnEveryBackend) {
  const auto backends = AllBackends();
  for (const int64_t pairs : {3, 16, 35}) {
    for (const int64_t stride : {1, 2, 3, 4}) {
      for (const double bias : {0.0, -1.0, 0.3}) {
        const auto plan = MakeHandPlan({.pairs = pairs, .amplitude = bias == 0.3 ? 1.5 : 1.0});
        RowLayout layout;
        layout.content_begin = 3;
        layout.content_end = 3 + stride * pairs;
        layout.width = layout.content_end + 2;
        layout.cos_bias = bias;
        for (int64_t column = 0; column < stride; ++column) {
          const bool cosine = column % 2 == 0;
          layout.blocks.push_back({0, pairs, cosine ? -1 : 3 + column, cosine ? 3 + column : -1,
                                   stride, false, column == 1});
        }
        layout.blocks.push_back({0, pairs, -1, 3, stride, true, false});
        layout.blocks.push_back({0, pairs, 3, -1, stride, true, true});
        ExpectSameRowsOnAll(backends, *plan, layout,
                            StrCat("stride ", stride, " pairs ", pairs, " bias ", bias));
      }
    }
  }
}

TEST(LayoutTest, BiasIsAddedAfterTheAmplitudeWithOneRounding) {
  const auto plan = MakeHandPlan({.pairs = 16, .amplitude = 1.3});
  RowLayout layout;
  layout.width = layout.content_end = 16;
  layout.blocks = {{0, 16, -1, 0, 1, false, false}};
  RowLayout biased = layout;
  biased.cos_bias = -1.0;
  const PositionSource positions = FewPlaces(1)[0];
  for (const auto& b : AllBackends()) {
    const Tensor plain = Encode(*b.backend, *plan, layout, positions, Dtype::kFloat32);
    const Tensor moved = Encode(*b.backend, *plan, biased, positions, Dtype::kFloat32);
    for (int64_t i = 0; i < plain.count(); ++i) {
      ASSERT_EQ(moved[i], static_cast<float>(plain[i]) + -1.0f) << b.name;
    }
  }
}

TEST(LayoutTest, CosineMinusOneIsZeroAtTheOrigin) {
  const auto plan = MakeHandPlan({.pairs = 9});
  RowLayout layout;
  layout.width = layout.content_end = 18;
  layout.cos_bias = -1.0;
  layout.blocks = {{0, 9, 0, 1, 2, false, false}};
  const PositionSource origin = SourceOf(AxisRange{IntegerRange{0, 1, 1}}, 1);
  for (const auto& b : AllBackends()) {
    const Tensor row = Encode(*b.backend, *plan, layout, origin, Dtype::kFloat32);
    for (int64_t i = 0; i < row.count(); ++i) EXPECT_EQ(row[i], 0.0) << b.name << " " << i;
  }
}

TEST(LayoutTest, AddsPaddedRowsToAnEmbeddingOnEveryBackend) {
  const auto backends = AllBackends();
  const auto plan = MakeHandPlan({.pairs = 7, .axes = 2, .dense = true});
  RowLayout layout;
  layout.content_begin = 5;
  layout.content_end = 19;
  layout.width = 22;
  layout.cos_bias = 0.5;
  layout.blocks = {{0, 7, 5, 12, 1, false, false}};
  for (const PositionSource& positions : FewPlaces(2)) {
    for (const Dtype dtype : kFloatDtypes) {
      Tensor embedding(dtype, positions.count() * layout.width);
      embedding.Fill(3, /*special=*/true);
      const Tensor want = Encode(*backends[0].backend, *plan, layout, positions, dtype, &embedding);
      for (const auto& b : backends) {
        ASSERT_TRUE(SameBits(want, Encode(*b.backend, *plan, layout, positions, dtype, &embedding)))
            << b.name << " " << Name(dtype);
      }
    }
  }
}

// Rotary ------------------------------------------------------------------------------------------

struct Turn {
  const Plan* plan = nullptr;
  const PositionSource* positions = nullptr;
  Dtype dtype = Dtype::kFloat32;
  int64_t heads = 2;
  bool inverse = false;
  bool in_place = true;
  bool heads_first = false;
  const Plan* from_plan = nullptr;
  const PositionSource* from_positions = nullptr;
};

Tensor Rotate(Backend& backend, const Turn& turn, const Tensor& x) {
  Tensor y = turn.in_place ? x : Tensor(x.dtype(), x.count());
  RotaryJob job;
  job.plan = turn.plan;
  job.positions = turn.positions;
  job.from_plan = turn.from_plan;
  job.from_positions = turn.from_positions;
  job.inverse = turn.inverse;
  job.tokens = turn.positions->count();
  const int64_t head = turn.plan->spec.head_dim * SizeOf(x.dtype());
  const RotaryStrides strides = turn.heads_first ? RotaryStrides{0, head, job.tokens * head}
                                                 : RotaryStrides{0, turn.heads * head, head};
  job.tensors = {
      {x.dtype(), turn.heads, turn.in_place ? y.data() : x.data(), strides, y.data(), strides}};
  const Job jobs[] = {job};
  EXPECT_TRUE(backend.Run(jobs).ok());
  EXPECT_TRUE(y.GuardsIntact());
  return y;
}

Tensor Input(const Turn& turn, bool special = true) {
  Tensor x(turn.dtype, turn.positions->count() * turn.heads * turn.plan->spec.head_dim,
           SizeOf(turn.dtype));
  x.Fill(11, special);
  return x;
}

void ExpectSameTurnOnAll(const std::vector<testing::NamedBackend>& backends, Turn turn,
                         const std::string& what) {
  for (const Dtype dtype : kFloatDtypes) {
    for (const bool in_place : {true, false}) {
      turn.dtype = dtype;
      turn.in_place = in_place;
      const Tensor x = Input(turn);
      const Tensor want = Rotate(*backends[0].backend, turn, x);
      for (size_t b = 1; b < backends.size(); ++b) {
        ASSERT_TRUE(SameBits(want, Rotate(*backends[b].backend, turn, x)))
            << backends[b].name << " " << Name(dtype) << " in place " << in_place << " " << what;
      }
    }
  }
}

constexpr Pairing kPairings[] = {Pairing::kHalfSplit, Pairing::kInterleaved};

// A GPU leaves them to the CPU.
TEST(RotaryFormsTest, PairsInBlocksAreTheSameOnEveryBackend) {
  constexpr Pairing kBlocks = Pairing::kBlockHalfSplit;
  const auto backends = AllBackends();
  const std::vector<std::vector<int64_t>> widths = {{32, 32}, {6, 10, 34}, {2, 64}, {16, 56, 56}};
  for (const std::vector<int64_t>& axes_dim : widths) {
    for (const auto& [in, out] : {std::pair(kBlocks, kBlocks),
                                  {kBlocks, Pairing::kInterleaved},
                                  {Pairing::kHalfSplit, kBlocks}}) {
      for (const int64_t apart : {0, 3}) {
        const auto axes = static_cast<int>(axes_dim.size());
        const auto plan = MakeHandPlan(
            {.pairs = std::accumulate(axes_dim.begin(), axes_dim.end(), int64_t{0}) / 2,
             .axes = axes,
             .rotary_begin = apart,
             .tail = apart,
             .pairing = in,
             .pairing_out = out,
             .axes_dim = axes_dim});
        for (const PositionSource& positions : FewPlaces(axes)) {
          Turn turn{.plan = plan.get(), .positions = &positions};
          ExpectSameTurnOnAll(backends, turn, StrCat("to ", Name(out)));
          turn.inverse = true;
          ExpectSameTurnOnAll(backends, turn, StrCat("from ", Name(out)));
          turn.inverse = false;
          turn.from_plan = plan.get();
          turn.from_positions = &positions;
          ExpectSameTurnOnAll(backends, turn, StrCat("delta of ", Name(out)));
        }
      }
    }
  }
}

TEST(RotaryFormsTest, HeadsWithTheirOwnFrequenciesAreTheSameOnEveryBackend) {
  const auto backends = AllBackends();
  for (const Pairing in : kPairings) {
    for (const Pairing out : kPairings) {
      for (const int64_t pairs : {1, 7, 16, 33}) {
        const auto plan = MakeHandPlan({.pairs = pairs,
                                        .heads = 3,
                                        .axes = 2,
                                        .dense = pairs % 2 == 1,
                                        .offsets = true,
                                        .rotary_begin = 2,
                                        .tail = 1,
                                        .pairing = in,
                                        .pairing_out = out});
        for (const PositionSource& positions : FewPlaces(2)) {
          Turn turn{.plan = plan.get(), .positions = &positions, .heads = 3};
          turn.inverse = pairs == 7;
          turn.heads_first = pairs == 16;
          ExpectSameTurnOnAll(backends, turn, StrCat("pairs ", pairs));
        }
      }
    }
  }
}

TEST(RotaryFormsTest, XposIsTheSameOnEveryBackend) {
  const auto backends = AllBackends();
  for (const Pairing pairing : kPairings) {
    for (const int64_t heads : {1, 2}) {
      HandPlan want{.pairs = 19, .heads = heads, .xpos = true, .amplitude = 1.125};
      want.pairing = want.pairing_out = pairing;
      const auto plan = MakeHandPlan(want);
      want.xpos_inverse = true;
      const auto from = MakeHandPlan(want, 2);
      const PositionSource positions = FewPlaces(1)[0];
      const PositionSource from_positions =
          SourceOf(AxisRange{RealRange{100.5, -1, positions.count()}}, 1);
      Turn turn{.plan = plan.get(), .positions = &positions};
      ExpectSameTurnOnAll(backends, turn, "forward");
      turn.inverse = true;
      ExpectSameTurnOnAll(backends, turn, "inverse");
      turn.inverse = false;
      turn.from_plan = from.get();
      turn.from_positions = &from_positions;
      ExpectSameTurnOnAll(backends, turn, "delta");
    }
  }
}

TEST(RotaryFormsTest, EachHeadTurnsByItsOwnFrequencies) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  const auto plan = MakeHandPlan({.pairs = 5, .heads = 3, .axes = 2, .dense = true});
  const PositionSource positions = FewPlaces(2)[1];
  const Turn turn{
      .plan = plan.get(), .positions = &positions, .dtype = Dtype::kFloat64, .heads = 3};
  const Tensor x = Input(turn, /*special=*/false);
  const Tensor y = Rotate(*backend, turn, x);
  const auto at = Read(positions);
  for (size_t t = 0; t < at.size(); ++t) {
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t j = 0; j < 5; ++j) {
        const uint64_t phase = testing::PairPhase(*plan, h * plan->head_pairs() + j, at[t]);
        const Real s = testing::TrueSinTurns(testing::PhaseToTurns(phase));
        const Real c = testing::TrueCosTurns(testing::PhaseToTurns(phase));
        const int64_t lane = (t * 3 + h) * 10 + j;
        const Real norm = sqrt(Real(x[lane]) * x[lane] + Real(x[lane + 5]) * x[lane + 5]);
        const Real bound = norm * testing::kRotary64;
        EXPECT_LE(abs(Real(y[lane]) - (x[lane] * c - x[lane + 5] * s)), bound);
        EXPECT_LE(abs(Real(y[lane + 5]) - (x[lane] * s + x[lane + 5] * c)), bound);
      }
    }
  }
}

TEST(RotaryFormsTest, XposScalesByTheFormula) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  for (const bool keys : {false, true}) {
    const auto plan = MakeHandPlan({.pairs = 8, .xpos = true, .xpos_inverse = keys});
    const auto flat = MakeHandPlan({.pairs = 8});
    const PositionSource positions = FewPlaces(1)[0];
    Turn turn{.plan = plan.get(), .positions = &positions};
    const Tensor x = Input(turn, /*special=*/false);
    const Tensor y = Rotate(*backend, turn, x);
    turn.plan = flat.get();
    turn.dtype = Dtype::kFloat64;
    Tensor wide(Dtype::kFloat64, x.count());
    for (int64_t i = 0; i < x.count(); ++i) wide.Set(i, x[i]);
    const Tensor turned = Rotate(*backend, turn, wide);
    for (int64_t i = 0; i < x.count(); ++i) {
      const int64_t t = i / 32, j = i % 8;
      const double zeta = (2 * j + 0.4 * 16) / (1.4 * 16);
      const double power = ((-3.0 + 5 * t) - 20.5) / 64;
      const double want = turned[i] * std::pow(zeta, keys ? -power : power);
      ASSERT_NEAR(y[i], want, 1e-6 * std::abs(want) + 1e-6) << t << " " << j;
    }
  }
}

TEST(RotaryFormsTest, InverseUndoesAmplitudeAndXpos) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  const auto plan = MakeHandPlan({.pairs = 16, .xpos = true, .amplitude = 1.4});
  const PositionSource positions = FewPlaces(1)[1];
  Turn turn{.plan = plan.get(), .positions = &positions, .dtype = Dtype::kFloat64};
  const Tensor x = Input(turn, /*special=*/false);
  const Tensor y = Rotate(*backend, turn, x);
  turn.inverse = true;
  const Tensor back = Rotate(*backend, turn, y);
  for (int64_t i = 0; i < x.count(); ++i) EXPECT_NEAR(back[i], x[i], 1e-14);
}

TEST(RotaryFormsTest, XposKeepsQueriesAndKeysAtADistance) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  const auto queries = MakeHandPlan({.pairs = 16, .xpos = true});
  const auto keys = MakeHandPlan({.pairs = 16, .xpos = true, .xpos_inverse = true});
  const auto score = [&](int64_t q_at, int64_t k_at) {
    const PositionSource q_place = SourceOf(AxisRange{IntegerRange{q_at, 1, 1}}, 1);
    const PositionSource k_place = SourceOf(AxisRange{IntegerRange{k_at, 1, 1}}, 1);
    Turn q{.plan = queries.get(), .positions = &q_place, .dtype = Dtype::kFloat64, .heads = 1};
    Turn k = q;
    k.plan = keys.get();
    k.positions = &k_place;
    const Tensor a = Rotate(*backend, q, Input(q, /*special=*/false));
    const Tensor b = Rotate(*backend, k, Input(k, /*special=*/false));
    double sum = 0;
    for (int64_t i = 0; i < a.count(); ++i) sum += a[i] * b[i];
    return sum;
  };
  EXPECT_NEAR(score(10, 3), score(110, 103), 1e-12);
}

}  // namespace
}  // namespace phasor
