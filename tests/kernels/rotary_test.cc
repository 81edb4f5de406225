// SPDX-License-Identifier: Apache-2.0
// The rotary op: every backend returns the reference's bytes for every dtype, pairing, direction,
// stride and split. The reference follows the contract in kernels/ops/rotary.h.
#include "kernels/ops/rotary.h"

#include <gtest/gtest.h>

#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/direct.h"
#include "tests/support/plans.h"
#include "tests/support/tensors.h"

namespace phasor {
namespace {

using testing::AllBackends;
using testing::kFloatDtypes;
using testing::SameBits;
using testing::SourceOf;
using testing::Tensor;

constexpr Pairing kBothPairings[] = {Pairing::kHalfSplit, Pairing::kInterleaved};

std::shared_ptr<const Plan> RotaryPlan(int64_t head_dim, int64_t begin, int64_t dim, Pairing in,
                                       Pairing out, double amplitude = 1.0) {
  Spec spec;
  spec.kind = SpecKind::kRotary;
  spec.family = FrequencyFamily::kGeometric;
  spec.rope_theta = 10000.0;
  spec.head_dim = head_dim;
  spec.rotary_begin = begin;
  spec.rotary_dim = dim;
  spec.pairing = in;
  spec.pairing_out = out;
  spec.attention_factor = amplitude;
  return testing::PlanOf(spec);
}

// A call over q and k in one job: [batch, tokens, heads, head_dim], or heads before tokens.
struct RotaryCall {
  std::shared_ptr<const Plan> plan;
  PositionSource positions;
  Dtype dtype = Dtype::kFloat32;
  int64_t batch = 1;
  int64_t tokens = 1;
  bool inverse = false;
  bool heads_first = false;
  bool in_place = true;
  std::shared_ptr<const Plan> from_plan;
  PositionSource from_positions;
  int64_t misalign = 0;
};

constexpr int64_t kHeadCounts[] = {3, 1};

RotaryStrides Strides(const RotaryCall& call, int64_t heads) {
  const int64_t head = call.plan->spec.head_dim * SizeOf(call.dtype);
  if (call.heads_first) return {heads * call.tokens * head, head, call.tokens * head};
  return {call.tokens * heads * head, heads * head, head};
}

std::vector<Tensor> RunOn(Backend& backend, const RotaryCall& call, bool special = true) {
  std::vector<Tensor> x, y;
  for (int64_t heads : kHeadCounts) {
    Tensor input(call.dtype, call.batch * call.tokens * heads * call.plan->spec.head_dim,
                 call.misalign);
    input.Fill(heads, special);
    x.push_back(input);
    y.push_back(call.in_place ? input : Tensor(call.dtype, input.count(), call.misalign));
  }
  RotaryJob job;
  job.plan = call.plan.get();
  job.positions = &call.positions;
  job.inverse = call.inverse;
  job.batch = call.batch;
  job.tokens = call.tokens;
  if (call.from_plan != nullptr) {
    job.from_plan = call.from_plan.get();
    job.from_positions = &call.from_positions;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const RotaryStrides strides = Strides(call, kHeadCounts[i]);
    job.tensors.push_back({call.dtype, kHeadCounts[i], call.in_place ? y[i].data() : x[i].data(),
                           strides, y[i].data(), strides});
  }
  const Job jobs[] = {job};
  EXPECT_TRUE(backend.Run(jobs).ok());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(x[i].GuardsIntact());
    EXPECT_TRUE(y[i].GuardsIntact());
  }
  return y;
}

void ExpectSameOnAll(const std::vector<testing::NamedBackend>& backends, const RotaryCall& call,
                     const std::string& what) {
  const auto want = RunOn(*backends[0].backend, call);
  for (size_t b = 1; b < backends.size(); ++b) {
    const auto got = RunOn(*backends[b].backend, call);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(SameBits(want[i], got[i])) << backends[b].name << " tensor " << i << " " << what;
    }
  }
}

TEST(RotaryTest, EveryBackendReturnsTheReferencesBytes) {
  const auto backends = AllBackends();
  for (Dtype dtype : kFloatDtypes) {
    for (Pairing in : kBothPairings) {
      for (Pairing out : kBothPairings) {
        for (int64_t dim : {2, 6, 14, 16, 18, 32, 34, 64, 80, 128, 256}) {
          for (bool in_place : {true, false}) {
            RotaryCall call;
            call.plan = RotaryPlan(dim + 5, 3, dim, in, out, dim == 34 ? 1.2 : 1.0);
            call.dtype = dtype;
            call.tokens = 37;
            call.positions = SourceOf(AxisRange{IntegerRange{131000, 5, call.tokens}});
            call.in_place = in_place;
            call.inverse = dim % 4 == 0;
            call.misalign = dim % 3;
            ExpectSameOnAll(backends, call,
                            StrCat(Name(dtype), " dim ", dim, " in place ", in_place, " pairings ",
                                   static_cast<int>(in), static_cast<int>(out)));
          }
        }
      }
    }
  }
}

TEST(RotaryTest, WholeHeadsStreamTheReferencesBytes) {
  const auto backends = AllBackends();
  for (Dtype dtype : kFloatDtypes) {
    for (Pairing pairing : kBothPairings) {
      for (bool heads_first : {false, true}) {
        // Tokens of three heads have less than a page, two pages and more, up to twelve.
        for (int64_t head_dim : {128, 896, 2048}) {
          RotaryCall call;
          call.plan = RotaryPlan(head_dim, 0, head_dim, pairing, pairing);
          call.dtype = dtype;
          call.batch = 3;
          call.tokens = head_dim == 128 ? 50 : 7;
          call.positions = SourceOf(AxisRange{IntegerRange{0, 1, call.tokens}});
          call.heads_first = heads_first;
          call.in_place = false;
          ExpectSameOnAll(
              backends, call,
              StrCat(Name(dtype), " head_dim ", head_dim, " heads first ", heads_first));
        }
      }
    }
  }
}

TEST(RotaryTest, DeltaAndRealPositionsAgreeOnEveryBackend) {
  const auto backends = AllBackends();
  for (Dtype dtype : kFloatDtypes) {
    RotaryCall call;
    call.plan = RotaryPlan(64, 0, 64, Pairing::kHalfSplit, Pairing::kHalfSplit);
    call.from_plan = RotaryPlan(64, 0, 64, Pairing::kHalfSplit, Pairing::kHalfSplit);
    call.dtype = dtype;
    call.tokens = 21;
    call.positions = SourceOf(AxisRange{RealRange{0.5, 1.25, call.tokens}});
    call.from_positions = SourceOf(AxisRange{IntegerRange{1000000, -1, call.tokens}});
    ExpectSameOnAll(backends, call, std::string(Name(dtype)));
  }
}

TEST(RotaryTest, ReferenceRotatesAsThePlanReads) {
  const auto backend = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  for (Pairing in : kBothPairings) {
    for (Pairing out : kBothPairings) {
      RotaryCall call;
      call.plan = RotaryPlan(20, 4, 12, in, out);
      call.dtype = Dtype::kFloat64;
      call.tokens = 9;
      call.positions = SourceOf(AxisRange{IntegerRange{-3, 2, call.tokens}});
      const auto y = RunOn(*backend, call, /*special=*/false);
      Tensor x(Dtype::kFloat64, y[0].count());
      x.Fill(kHeadCounts[0]);
      for (int64_t t = 0; t < call.tokens; ++t) {
        for (int64_t h = 0; h < kHeadCounts[0]; ++h) {
          std::vector<double> head(20);
          for (int64_t i = 0; i < 20; ++i) head[i] = x[(t * kHeadCounts[0] + h) * 20 + i];
          const auto want = testing::RotateHead(*call.plan, {Position{-3 + 2 * t, 0}}, head);
          for (int64_t i = 0; i < 20; ++i) {
            ASSERT_NEAR(y[0][(t * kHeadCounts[0] + h) * 20 + i], want[i], 1e-14);
          }
        }
      }
    }
  }
}

TEST(RotaryTest, NansAndInfinitiesStayInTheirPairs) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  for (Dtype dtype : kFloatDtypes) {
    const auto plan = RotaryPlan(32, 0, 32, Pairing::kInterleaved, Pairing::kInterleaved);
    const PositionSource positions = SourceOf(AxisRange{IntegerRange{7, 1, 1}});
    Tensor x(dtype, 32);
    x.Fill(1);
    Tensor y = x;
    y.Set(4, NAN);
    y.Set(11, INFINITY);
    const RotaryStrides strides{0, 32 * SizeOf(dtype), 32 * SizeOf(dtype)};
    const auto run = [&](Tensor& t) {
      RotaryJob job;
      job.plan = plan.get();
      job.positions = &positions;
      job.tokens = 1;
      job.tensors = {{dtype, 1, t.data(), strides, t.data(), strides}};
      const Job jobs[] = {job};
      ASSERT_TRUE(backend->Run(jobs).ok());
    };
    run(x);
    run(y);
    for (int64_t i = 0; i < 32; ++i) {
      if (i / 2 == 2) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else if (i / 2 == 5) {
        EXPECT_FALSE(std::isfinite(y[i]));
      } else {
        EXPECT_EQ(x[i], y[i]) << i;
      }
    }
  }
}

TEST(RotaryTest, ZeroTokensTouchNothing) {
  for (const auto& b : AllBackends()) {
    RotaryCall call;
    call.plan = RotaryPlan(64, 0, 64, Pairing::kHalfSplit, Pairing::kHalfSplit);
    call.tokens = 0;
    call.positions = SourceOf(AxisRange{IntegerRange{0, 1, 0}});
    RunOn(*b.backend, call);  // RunOn checks the guards
  }
}

}  // namespace
}  // namespace phasor
