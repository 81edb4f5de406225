// SPDX-License-Identifier: Apache-2.0
// Rotations that become FLOAT8, go to the pages of a cache, or are copies. Every backend returns
// the reference's bytes, and the reference rotates, then rounds, then stores at the slot.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/ops/rotary.h"
#include "tests/support/backends.h"
#include "tests/support/plans.h"
#include "tests/support/tensors.h"

namespace phasor {
namespace {

using testing::AllBackends;
using testing::SameBits;
using testing::SourceOf;
using testing::Tensor;

constexpr Dtype kFloat8Dtypes[] = {Dtype::kFloat8E4M3, Dtype::kFloat8E5M2};
constexpr Dtype kHalfDtypes[] = {Dtype::kFloat16, Dtype::kBFloat16};

// Tokens of `heads` heads.
struct OutputCall {
  std::shared_ptr<const Plan> plan;
  Dtype dtype = Dtype::kBFloat16;
  Dtype output = Dtype::kBFloat16;
  float inv_scale = 1;
  int64_t tokens = 37;
  int64_t heads = 3;
  bool rotates = true;
  std::vector<int64_t> slots = {};  // not empty: the slots of the tokens
  int64_t page_size = 4;
  int64_t pages = 0;
  int64_t misalign = 0;

  int64_t head_dim() const { return plan->spec.head_dim; }
  int64_t rows() const { return slots.empty() ? tokens : pages * page_size; }
};

std::shared_ptr<const Plan> PartialPlan(int64_t dim, Pairing in, Pairing out) {
  Spec spec;
  spec.kind = SpecKind::kRotary;
  spec.family = FrequencyFamily::kGeometric;
  spec.rope_theta = 10000.0;
  spec.head_dim = dim + 19;
  spec.rotary_begin = 2;
  spec.rotary_dim = dim;
  spec.pairing = in;
  spec.pairing_out = out;
  spec.attention_factor = 1.25;
  return testing::PlanOf(spec);
}

Tensor InputOf(const OutputCall& call) {
  Tensor x(call.dtype, call.tokens * call.heads * call.head_dim(), call.misalign);
  x.Fill(7, /*special=*/true);
  return x;
}

// [rows, heads, head_dim], in memory that held other values before.
Tensor RunOn(Backend& backend, const OutputCall& call, const Tensor& x) {
  Tensor y(call.output, call.rows() * call.heads * call.head_dim(), call.misalign);
  std::memset(y.data(), 0x11, static_cast<size_t>(y.size_bytes()));
  const PositionSource positions = SourceOf(AxisRange{IntegerRange{131000, 5, call.tokens}});
  const int64_t from = call.head_dim() * SizeOf(call.dtype);
  const int64_t to = call.head_dim() * SizeOf(call.output);
  std::vector<int64_t> offsets;
  for (const int64_t slot : call.slots) offsets.push_back(slot < 0 ? -1 : slot * call.heads * to);
  RotaryTensor tensor{call.dtype, call.heads,
                      x.data(),   {0, call.heads * from, from},
                      y.data(),   {0, call.heads * to, to}};
  tensor.float8 = Float8Of(call.output);
  tensor.inv_scale = call.inv_scale;
  tensor.rotates = call.rotates;
  if (!call.slots.empty()) {
    tensor.y_strides.batch = call.page_size * call.heads * to;
    tensor.y_offsets = offsets.data();
  }
  RotaryJob job;
  job.plan = call.plan.get();
  job.positions = &positions;
  job.tokens = call.tokens;
  job.tensors = {tensor};
  const Job jobs[] = {job};
  EXPECT_TRUE(backend.Run(jobs).ok());
  EXPECT_TRUE(y.GuardsIntact());
  return y;
}

void ExpectSameOnAll(const OutputCall& call, const std::string& what) {
  static const auto* const backends = new auto(AllBackends());
  const Tensor x = InputOf(call);
  const Tensor want = RunOn(*(*backends)[0].backend, call, x);
  for (size_t b = 1; b < backends->size(); ++b) {
    const Tensor got = RunOn(*(*backends)[b].backend, call, x);
    ASSERT_TRUE(SameBits(want, got)) << (*backends)[b].name << " " << what;
    if (call.output == call.dtype) continue;
    ASSERT_EQ(std::memcmp(want.data(), got.data(), static_cast<size_t>(want.size_bytes())), 0)
        << "a NaN of FLOAT8 has one form; " << (*backends)[b].name << " " << what;
  }
}

// Slots of a few pages in random order; some tokens have none.
void Scatter(OutputCall& call) {
  call.pages = call.tokens / call.page_size + 2;
  call.slots.resize(static_cast<size_t>(call.pages * call.page_size));
  std::iota(call.slots.begin(), call.slots.end(), 0);
  std::shuffle(call.slots.begin(), call.slots.end(), std::mt19937(3));
  call.slots.resize(static_cast<size_t>(call.tokens));
  call.slots[2] = call.slots[9] = -1;
}

TEST(RotaryOutputsTest, EveryBackendReturnsTheReferencesBytes) {
  for (const Pairing in : {Pairing::kHalfSplit, Pairing::kInterleaved}) {
    for (const Pairing out : {Pairing::kHalfSplit, Pairing::kInterleaved}) {
      for (const int64_t dim : {2, 14, 16, 18, 32, 34, 128}) {
        OutputCall call;
        call.plan = PartialPlan(dim, in, out);
        call.misalign = dim % 3;
        for (const bool paged : {false, true}) {
          if (paged) Scatter(call);
          for (const Dtype dtype : kHalfDtypes) {
            call.dtype = dtype;
            for (const Dtype output : {dtype, Dtype::kFloat8E4M3, Dtype::kFloat8E5M2}) {
              call.output = output;
              call.inv_scale = dim == 16 ? 300.0f : 0.7f;
              call.rotates = dim != 34;
              ExpectSameOnAll(
                  call, StrCat(Name(dtype), " to ", Name(output), " dim ", dim, " paged ", paged,
                               " pairings ", static_cast<int>(in), static_cast<int>(out)));
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(RotaryOutputsTest, PairsInBlocksAreTheSameOnEveryBackend) {
  auto plan = std::make_shared<Plan>(*PartialPlan(34, Pairing::kHalfSplit, Pairing::kHalfSplit));
  plan->spec.pairing = plan->spec.pairing_out = Pairing::kBlockHalfSplit;
  plan->spec.axes_dim = {22, 12};
  OutputCall call;
  call.plan = plan;
  Scatter(call);
  for (const Dtype output : {Dtype::kBFloat16, Dtype::kFloat8E4M3, Dtype::kFloat8E5M2}) {
    call.dtype = Dtype::kBFloat16;
    call.output = output;
    ExpectSameOnAll(call, std::string(Name(output)));
  }
}

// The f32 rotation of the widened input gives exactly the value to be rounded.
TEST(RotaryOutputsTest, Float8IsTheRoundedRotationOfTheWidenedInput) {
  const auto backend = cpu::MakeCpuBackend({cpu::Target::kScalar, 1});
  for (const Dtype dtype : kHalfDtypes) {
    for (const Dtype output : kFloat8Dtypes) {
      OutputCall call;
      call.plan = PartialPlan(32, Pairing::kHalfSplit, Pairing::kInterleaved);
      call.dtype = dtype;
      call.output = output;
      call.inv_scale = 31.7f;
      const Tensor x = InputOf(call);
      const Tensor got = RunOn(*backend, call, x);
      OutputCall wide = call;
      wide.dtype = wide.output = Dtype::kFloat32;
      Tensor widened(Dtype::kFloat32, x.count());
      for (int64_t i = 0; i < x.count(); ++i) widened.Set(i, x[i]);
      const Tensor rotated = RunOn(*backend, wide, widened);
      for (int64_t i = 0; i < x.count(); ++i) {
        const uint8_t want =
            Float8FromFloat(static_cast<float>(rotated[i]) * call.inv_scale, Float8Of(output));
        ASSERT_EQ(static_cast<uint8_t>(got.data()[i]), want) << Name(dtype) << " " << i;
      }
    }
  }
}

TEST(RotaryOutputsTest, PagesHaveTheRowsOfADenseOutputAndKeepTheOthers) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  for (const bool rotates : {true, false}) {
    OutputCall call;
    call.plan = PartialPlan(32, Pairing::kHalfSplit, Pairing::kHalfSplit);
    call.rotates = rotates;
    const Tensor x = InputOf(call);
    const Tensor dense = RunOn(*backend, call, x);
    EXPECT_EQ(static_cast<bool>(SameBits(dense, x)), !rotates);
    Scatter(call);
    const Tensor paged = RunOn(*backend, call, x);
    const auto row = static_cast<size_t>(call.heads * call.head_dim() * 2);
    const std::vector<std::byte> untouched(row, std::byte{0x11});
    for (int64_t slot = 0; slot < call.rows(); ++slot) {
      const auto token = std::find(call.slots.begin(), call.slots.end(), slot);
      const std::byte* const want =
          token == call.slots.end()
              ? untouched.data()
              : dense.data() + static_cast<size_t>(token - call.slots.begin()) * row;
      EXPECT_EQ(std::memcmp(paged.data() + static_cast<size_t>(slot) * row, want, row), 0) << slot;
    }
  }
}

}  // namespace
}  // namespace phasor
