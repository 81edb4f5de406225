// SPDX-License-Identifier: Apache-2.0
// The encode op: every backend returns the reference's bytes, and the reference follows the
// contract in kernels/ops/encode.h.
#include "kernels/ops/encode.h"

#include <gtest/gtest.h>

#include <iostream>

#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/direct.h"
#include "tests/support/plans.h"
#include "tests/support/tensors.h"

namespace phasor {
namespace {

using testing::AllBackends;
using testing::kFloatDtypes;
using testing::PlanOf;
using testing::SameBits;
using testing::SourceOf;
using testing::Tensor;

Spec Sinusoid(int64_t dim, Arrangement arrangement, TrigOrder order) {
  Spec spec;
  spec.kind = SpecKind::kEncoding;
  spec.family = FrequencyFamily::kGeometric;
  spec.dim = dim;
  spec.rope_theta = 10000.0;
  spec.arrangement = arrangement;
  spec.order = order;
  return spec;
}

// Every layout that plans can express, at widths around vectors and blocks.
std::vector<Spec> Layouts() {
  std::vector<Spec> specs;
  for (int64_t dim : {2, 4, 6, 14, 16, 18, 30, 32, 34, 62, 66, 128, 200}) {
    for (Arrangement arrangement : {Arrangement::kInterleaved, Arrangement::kConcatenated}) {
      for (TrigOrder order : {TrigOrder::kSinCos, TrigOrder::kCosSin}) {
        specs.push_back(Sinusoid(dim, arrangement, order));
      }
    }
    Spec literal;
    literal.preset = "transformer-literal";
    literal.dim = dim;
    specs.push_back(literal);
  }
  for (AxisGrouping grouping :
       {AxisGrouping::kAxisMajor, AxisGrouping::kComponentMajor, AxisGrouping::kSum}) {
    for (int64_t dim : {4, 12, 36, 72, 256}) {
      Spec spec = Sinusoid(dim, Arrangement::kConcatenated, TrigOrder::kSinCos);
      spec.axes = 2;
      spec.grouping = grouping;
      specs.push_back(spec);
    }
  }
  // So wide that fewer rows are computed at once.
  for (Arrangement arrangement : {Arrangement::kInterleaved, Arrangement::kConcatenated}) {
    specs.push_back(Sinusoid(600, arrangement, TrigOrder::kSinCos));
  }
  for (const auto& [content, padding] : {std::pair{36, 1}, {64, 1}, {64, 32}}) {
    Spec padded = Sinusoid(content + padding, Arrangement::kConcatenated, TrigOrder::kCosSin);
    padded.pad_back = padding;
    specs.push_back(padded);
  }
  return specs;
}

// Positions of 0 to 300 rows: with and without a constant step, negative, huge and real.
std::vector<PositionSource> ManyPlaces(int axes) {
  std::vector<PositionSource> places;
  if (axes == 2) {
    places.push_back(SourceOf(PositionGrid{{IntegerRange{-2, 3, 5}, RealRange{0.25, 0.5, 7}}}, 2));
    places.push_back(SourceOf(PositionGrid{{IntegerRange{7, 1, 1}, IntegerRange{0, 1, 65}}}, 2));
    return places;
  }
  for (int64_t count : {0, 1, 2, 3, 33, 70})
    places.push_back(SourceOf(AxisRange{IntegerRange{0, 1, count}}, 1));
  places.push_back(SourceOf(AxisRange{IntegerRange{(int64_t{1} << 40) + 12345, -7, 9}}, 1));
  // More rows than one kernel call gets, and more than it computes with one vector of pairs.
  places.push_back(SourceOf(AxisRange{IntegerRange{-5, 1234567891011, 300}}, 1));
  places.push_back(SourceOf(AxisRange{RealRange{-3.7, 0.001, 20}}, 1));
  places.push_back(SourceOf(RaggedPositions{{3, 0, 40, 2}, {5, 0, 1000000, 131071}}, 1));
  return places;
}

struct Call {
  std::shared_ptr<const Plan> plan;
  const PositionSource* positions;
  Dtype dtype;
  const Tensor* add_to = nullptr;
  bool in_place = false;
  int64_t misalign = 0;
};

Tensor RunOn(Backend& backend, const Call& call) {
  const int64_t dim = call.plan->spec.dim;
  Tensor out(call.dtype, call.positions->count() * dim, call.misalign);
  if (call.in_place) std::memcpy(out.data(), call.add_to->data(), out.size_bytes());
  EncodeJob job;
  job.plan = call.plan.get();
  job.positions = call.positions;
  job.dtype = call.dtype;
  job.out = out.data();
  job.out_row_bytes = dim * SizeOf(call.dtype);
  if (call.add_to != nullptr) {
    job.add_to = call.in_place ? out.data() : call.add_to->data();
    job.add_to_row_bytes = job.out_row_bytes;
    job.embedding_scale = 22.627416997969522;
  }
  const Job jobs[] = {job};
  EXPECT_TRUE(backend.Run(jobs).ok());
  EXPECT_TRUE(out.GuardsIntact());
  return out;
}

TEST(EncodeTest, EveryBackendReturnsTheReferencesBytes) {
  const auto backends = AllBackends();
  std::cout << "backends:";
  for (const auto& b : backends) std::cout << ' ' << b.name;
  std::cout << '\n';
  for (const Spec& spec : Layouts()) {
    const auto plan = PlanOf(spec);
    for (const PositionSource& positions : ManyPlaces(plan->spec.axes)) {
      for (Dtype dtype : kFloatDtypes) {
        const Call call{plan,    &positions, dtype,
                        nullptr, false,      positions.count() % 2 * SizeOf(dtype)};
        const Tensor want = RunOn(*backends[0].backend, call);
        for (size_t i = 1; i < backends.size(); ++i) {
          ASSERT_TRUE(SameBits(want, RunOn(*backends[i].backend, call)))
              << backends[i].name << " dim " << plan->spec.dim << " " << Name(dtype) << " rows "
              << positions.count();
        }
      }
    }
  }
}

TEST(EncodeTest, EveryBackendAddsTheReferencesBytes) {
  const auto backends = AllBackends();
  for (const Spec& spec : Layouts()) {
    const auto plan = PlanOf(spec);
    for (const PositionSource& positions : ManyPlaces(plan->spec.axes)) {
      if (positions.count() < 35) continue;
      for (Dtype dtype : kFloatDtypes) {
        Tensor embedding(dtype, positions.count() * plan->spec.dim, 1);
        embedding.Fill(plan->spec.dim, /*special=*/true);
        Call call{plan, &positions, dtype, &embedding};
        const Tensor want = RunOn(*backends[0].backend, call);
        for (const auto& b : backends) {
          for (bool in_place : {false, true}) {
            call.in_place = in_place;
            ASSERT_TRUE(SameBits(want, RunOn(*b.backend, call)))
                << b.name << " dim " << plan->spec.dim << " " << Name(dtype) << " in place "
                << in_place << " rows " << positions.count();
          }
        }
      }
    }
  }
}

TEST(EncodeTest, RowsMayLieAnywhereAndAnyNumberOfBytesApart) {
  constexpr int64_t kRows = 70;
  const auto backends = AllBackends();
  const PositionSource positions = SourceOf(AxisRange{IntegerRange{3, 1, kRows}}, 1);
  std::vector<std::shared_ptr<const Plan>> plans;
  for (Arrangement arrangement : {Arrangement::kInterleaved, Arrangement::kConcatenated}) {
    for (const int64_t dim : {20, 128}) {  // parts of vectors too
      plans.push_back(PlanOf(Sinusoid(dim, arrangement, TrigOrder::kSinCos)));
    }
  }
  for (const auto& plan : plans) {
    const int64_t dim = plan->layout.width;
    for (Dtype dtype : kFloatDtypes) {
      for (const int64_t gap : {1, 2, 4, 64}) {
        EncodeJob job{.plan = plan.get(), .positions = &positions, .dtype = dtype};
        job.out_row_bytes = dim * SizeOf(dtype) + gap;
        const auto run = [&](Backend& backend) {
          std::vector<std::byte> out(static_cast<size_t>(1 + kRows * job.out_row_bytes),
                                     std::byte{0xAB});
          job.out = out.data() + 1;
          const Job jobs[] = {job};
          EXPECT_TRUE(backend.Run(jobs).ok());
          return out;
        };
        const auto want = run(*backends[0].backend);
        for (const auto& b : backends) {
          ASSERT_EQ(run(*b.backend), want) << b.name << " " << Name(dtype) << " gap " << gap;
        }
      }
    }
  }
}

// Rows so wide that whole lines of the cache are written past it, wherever the first one begins.
TEST(EncodeTest, WideRowsMayBeginAnywhereInALine) {
  const auto backends = AllBackends();
  std::vector<Spec> specs;
  for (Arrangement arrangement : {Arrangement::kInterleaved, Arrangement::kConcatenated}) {
    for (TrigOrder order : {TrigOrder::kSinCos, TrigOrder::kCosSin}) {
      specs.push_back(Sinusoid(1536, arrangement, order));
    }
    specs.push_back(Sinusoid(1024 + 16, arrangement, TrigOrder::kSinCos));
    specs.back().pad_back = 16;
  }
  specs.push_back(Sinusoid(2048, Arrangement::kConcatenated, TrigOrder::kSinCos));
  specs.back().axes = 2;
  specs.back().grouping = AxisGrouping::kAxisMajor;
  for (const Spec& spec : specs) {
    const auto plan = std::make_shared<Plan>(*PlanOf(spec));
    const PositionSource positions =
        plan->spec.axes == 1
            ? SourceOf(AxisRange{IntegerRange{131071, 3, 35}}, 1)
            : SourceOf(PositionGrid{{IntegerRange{7, 1, 1}, IntegerRange{0, 1, 35}}}, 2);
    for (const double amplitude : {1.0, 1.25}) {
      plan->amplitude = amplitude;
      for (Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
        for (int64_t misalign = 0; misalign < 64; misalign += 4) {
          const Call call{plan, &positions, dtype, nullptr, false, misalign};
          const Tensor want = RunOn(*backends[0].backend, call);
          for (const auto& b : backends) {
            ASSERT_TRUE(SameBits(want, RunOn(*b.backend, call)))
                << b.name << " dim " << plan->spec.dim << " amplitude " << amplitude << " "
                << Name(dtype) << " misalign " << misalign;
          }
        }
      }
    }
  }
}

TEST(EncodeTest, EveryBackendScalesByTheAmplitude) {
  // Encoding specs have no amplitude, but rotary tables, which are encodings of a rotary plan, do.
  const auto backends = AllBackends();
  for (Arrangement arrangement : {Arrangement::kInterleaved, Arrangement::kConcatenated}) {
    auto plan = std::make_shared<Plan>(*PlanOf(Sinusoid(38, arrangement, TrigOrder::kSinCos)));
    const PositionSource positions = SourceOf(AxisRange{IntegerRange{0, 1, 40}}, 1);
    for (Dtype dtype : kFloatDtypes) {
      plan->amplitude = 1.0;
      const Tensor plain = RunOn(*backends[0].backend, {plan, &positions, dtype});
      plan->amplitude = 1.25;
      const Tensor want = RunOn(*backends[0].backend, {plan, &positions, dtype});
      for (int64_t i = 0; i < want.count(); ++i) ASSERT_NEAR(want[i], 1.25 * plain[i], 0.02);
      for (const auto& b : backends) {
        ASSERT_TRUE(SameBits(want, RunOn(*b.backend, {plan, &positions, dtype}))) << b.name;
      }
    }
  }
}

TEST(EncodeTest, ReferenceReadsPlansLiterally) {
  const auto backend = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  for (const Spec& spec : Layouts()) {
    const auto plan = PlanOf(spec);
    const int axes = plan->spec.axes;
    for (const PositionSource& positions : ManyPlaces(axes)) {
      const Tensor got = RunOn(*backend, {plan, &positions, Dtype::kFloat64});
      std::vector<Position> at(positions.count() * axes);
      ReadPositions(positions, 0, positions.count(), at.data());
      for (int64_t t = 0; t < positions.count(); ++t) {
        const auto want =
            testing::EncodeRow(*plan, {at.begin() + t * axes, at.begin() + (t + 1) * axes});
        for (int64_t c = 0; c < plan->spec.dim; ++c) {
          ASSERT_NEAR(got[t * plan->spec.dim + c], want[c], 1e-15) << t << " " << c;
        }
      }
    }
  }
}

TEST(EncodeTest, NarrowOutputsAreTheFloat32ResultRoundedOnce) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  const auto plan = PlanOf(Sinusoid(128, Arrangement::kConcatenated, TrigOrder::kSinCos));
  const PositionSource positions = SourceOf(AxisRange{IntegerRange{0, 977, 500}}, 1);
  const Tensor wide = RunOn(*backend, {plan, &positions, Dtype::kFloat32});
  for (Dtype dtype : {Dtype::kFloat16, Dtype::kBFloat16}) {
    Tensor want(dtype, wide.count());
    for (int64_t i = 0; i < wide.count(); ++i) want.Set(i, wide[i]);
    EXPECT_TRUE(SameBits(want, RunOn(*backend, {plan, &positions, dtype})));
  }
}

}  // namespace
}  // namespace phasor
