// SPDX-License-Identifier: Apache-2.0
// Hashes of results that must not change while kNumericsVersion stays the same. If bits change, it
// is a new version: increase it in kernels/spec/spec.h, then replace the hashes.
#include <gtest/gtest.h>

#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/tensors.h"

namespace phasor {
namespace {

using testing::Tensor;

uint64_t Fnv1a(const Tensor& t) {
  uint64_t hash = 14695981039346656037u;
  for (int64_t i = 0; i < t.size_bytes(); ++i) {
    hash = (hash ^ static_cast<uint64_t>(t.data()[i])) * 1099511628211u;
  }
  return hash;
}

struct Golden {
  const char* preset;
  Dtype dtype;
  bool real;  // positions a quarter away from integers
  uint64_t hash;
};

uint64_t EncodeHash(const Golden& golden) {
  EncodeRequest request;
  request.spec.preset = golden.preset;
  request.spec.dim = 96;
  request.output_dtype = golden.dtype;
  request.positions = golden.real ? AxisRange{RealRange{-20.25, 0.375, 300}}
                                  : AxisRange{IntegerRange{-7, 4099, 300}};
  auto prepared = PrepareEncode(request, CompilePlan, "item");
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  Tensor out(golden.dtype, prepared->output_bytes / SizeOf(golden.dtype));
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  const Job jobs[] = {MakeEncodeJob(*prepared, nullptr, out.data())};
  EXPECT_TRUE(backend->Run(jobs).ok());
  return Fnv1a(out);
}

uint64_t RopeHash(const Golden& golden) {
  RopeRequest request;
  request.spec.preset = golden.preset;
  request.positions =
      golden.real ? AxisRange{RealRange{-20.25, 0.375, 40}} : AxisRange{IntegerRange{-7, 4099, 40}};
  request.tensors = {{golden.dtype, {40, 3, 64}, {}}};
  auto prepared = PrepareRope(request, CompilePlan, "item");
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  Tensor x(golden.dtype, 40 * 3 * 64);
  for (int64_t i = 0; i < x.count(); ++i) x.Set(i, static_cast<double>(i * 37 % 1001) / 64 - 7);
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  const std::byte* const in[] = {x.data()};
  std::byte* const out[] = {x.data()};
  const Job jobs[] = {MakeRotaryJob(*prepared, in, out)};
  EXPECT_TRUE(backend->Run(jobs).ok());
  return Fnv1a(x);
}

TEST(GoldenTest, EncodingsKeepTheirBits) {
  for (const Golden& golden : {
#include "tests/kernels/golden_encode.inc"
       }) {
    EXPECT_EQ(EncodeHash(golden), golden.hash)
        << golden.preset << " " << Name(golden.dtype) << " real " << golden.real << std::hex
        << " 0x" << EncodeHash(golden);
  }
}

TEST(GoldenTest, RotationsKeepTheirBits) {
  for (const Golden& golden : {
#include "tests/kernels/golden_rotary.inc"
       }) {
    EXPECT_EQ(RopeHash(golden), golden.hash)
        << golden.preset << " " << Name(golden.dtype) << " real " << golden.real << std::hex
        << " 0x" << RopeHash(golden);
  }
}

}  // namespace
}  // namespace phasor
