// SPDX-License-Identifier: Apache-2.0
// Checks the error bounds of docs/numerics.md against 320-bit arithmetic, which does not use the
// kernels' fixed point. Prints the worst case of each band. PHASOR_ACCURACY_ROWS sets how many
// random positions each band has.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <random>
#include <vector>

#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"
#include "tests/support/truth.h"

namespace phasor {
namespace {

using testing::Real;
using testing::Tensor;

struct Band {
  const char* name;
  std::vector<double> positions;
};

int64_t RandomRows() {
  const char* rows = std::getenv("PHASOR_ACCURACY_ROWS");
  return rows == nullptr ? 12 : std::atoll(rows);
}

// Positions 0, 1, powers of two and their neighbours, the lengths that models use, and random ones.
std::vector<Band> Bands() {
  std::mt19937_64 random(7);
  std::vector<Band> bands = {{"0 .. 4096", {0, 1, 2, 3, 255, 256, 4095, 4096}},
                             {"to 2^20", {65535, 65536, 131071, 1048575, 1048576}},
                             {"to 2^24", {1e7, 16777215, 16777216}},
                             {"to 2^32", {0x1p31 - 1, 0x1p31, 0x1p32 - 1, 0x1p32}},
                             {"real, below 1", {}},
                             {"real, to 2^20", {}}};
  const double tops[] = {4096, 0x1p20, 0x1p24, 0x1p32};
  for (int64_t i = 0; i < RandomRows(); ++i) {
    for (int b = 0; b < 4; ++b)
      bands[b].positions.push_back(std::floor(tops[b] * (random() * 0x1p-64)));
    bands[4].positions.push_back(random() * 0x1p-64);
    bands[4].positions.push_back(std::ldexp(random() * 0x1p-64, -static_cast<int>(random() % 40)));
    bands[5].positions.push_back((random() * 0x1p-63 - 1) * 0x1p20);
  }
  return bands;
}

PlanProvider Compile() {
  static const auto compile = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
  return compile;
}

// The turns of a convention's pair j at a position.
using TurnsOfPair = Real (*)(const Real& position, int64_t j, int64_t pairs);
Real SinusoidTurns(const Real& p, int64_t j, int64_t n) {
  return testing::GeometricTurns(p, 10000.0, Real(j) / n);
}
Real LongTurns(const Real& p, int64_t j, int64_t n) {
  return testing::GeometricTurns(p, 1e7, Real(j) / n);
}
Real FlowTurns(const Real& p, int64_t j, int64_t n) {
  return testing::PeriodTurns(p, 4e-3, 4.0, Real(j) / (n - 1));
}

struct Convention {
  const char* name;
  Spec spec;
  TurnsOfPair turns;
  double largest_frequency;  // in turns per unit
};

std::vector<Convention> Conventions() {
  Spec sinusoid, longer, flow;
  sinusoid.preset = "timestep-sin-cos";
  sinusoid.dim = 64;
  longer = sinusoid;
  longer.rope_theta = 1e7;
  flow.preset = "flow-periods";
  flow.dim = 32;
  return {{"theta 1e4", sinusoid, SinusoidTurns, 0.16},
          {"theta 1e7", longer, LongTurns, 0.16},
          {"periods 4e-3..4", flow, FlowTurns, 250.0}};
}

struct Worst {
  double ulp = 0;  // beyond the phase error that the contract allows
  double absolute = 0;
  double excess = 0;  // error divided by its bound
  int64_t count = 0;
  int64_t nearest = 0;  // results that are correctly rounded
};

void Print(const std::string& what, const Worst& w) {
  std::cout << std::left << std::setw(54) << what << std::right << std::fixed
            << std::setprecision(3) << " ulp " << std::setw(8) << w.ulp << "  abs 2^"
            << std::setw(8) << std::log2(w.absolute) << "  of bound " << std::setw(6) << w.excess
            << "  nearest " << std::setprecision(2) << std::setw(6)
            << 100.0 * w.nearest / std::max<int64_t>(w.count, 1) << " %\n";
}

template <typename T>
void Note(T got, const Real& want, double bound, double phi, Worst* w) {
  const double error = static_cast<double>(abs(Real(got) - want));
  w->ulp = std::max(w->ulp, (error - phi) / static_cast<double>(testing::UlpAt<T>(want)));
  w->absolute = std::max(w->absolute, error);
  w->excess = std::max(w->excess, error / bound);
  w->count += 1;
  w->nearest += got == static_cast<T>(want);
}

Tensor Encode(Backend& backend, const Spec& spec, const std::vector<double>& positions,
              Dtype dtype) {
  EncodeRequest request;
  request.spec = spec;
  request.output_dtype = dtype;
  request.positions = PositionTensor{Dtype::kFloat64, {static_cast<int64_t>(positions.size())}};
  auto prepared = PrepareEncode(request, Compile(), "item");
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  prepared->positions.data = reinterpret_cast<const std::byte*>(positions.data());
  Tensor out(dtype, prepared->output_bytes / SizeOf(dtype));
  const Job jobs[] = {MakeEncodeJob(*prepared, nullptr, out.data())};
  EXPECT_TRUE(backend.Run(jobs).ok());
  return out;
}

TEST(AccuracyTest, EncodeKeepsItsContract) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  std::cout << "target " << backend->target() << '\n';
  for (const Convention& convention : Conventions()) {
    for (const Band& band : Bands()) {
      const Tensor single = Encode(*backend, convention.spec, band.positions, Dtype::kFloat32);
      const Tensor twice = Encode(*backend, convention.spec, band.positions, Dtype::kFloat64);
      const int64_t dim = *convention.spec.dim, pairs = dim / 2;
      Worst f32, f64;
      for (size_t t = 0; t < band.positions.size(); ++t) {
        const double x = band.positions[t];
        const double phi = testing::PhaseError(x, convention.largest_frequency);
        for (int64_t c = 0; c < dim; ++c) {
          const Real turns = convention.turns(Real(x), c % pairs, pairs);
          const Real want = c < pairs ? testing::TrueSinTurns(turns) : testing::TrueCosTurns(turns);
          const double ulp = static_cast<double>(testing::UlpAt<float>(want));
          Note(static_cast<float>(single[t * dim + c]), want, testing::kEncode32Ulp * ulp + phi,
               phi, &f32);
          Note(twice[t * dim + c], want, testing::kEncode64Absolute + phi, phi, &f64);
        }
      }
      Print(std::string("encode f32 ") + convention.name + ", " + band.name, f32);
      Print(std::string("encode f64 ") + convention.name + ", " + band.name, f64);
      EXPECT_LE(f32.excess, 1.0);
      EXPECT_LE(f64.excess, 1.0);
      const bool integer = band.name[0] != 'r';
      if (integer) {
        EXPECT_LE(f32.absolute, testing::kEncode32Absolute);
      }
      if (integer && band.positions[3] < 0x1p24) {
        EXPECT_GE(1.0 * f32.nearest / f32.count, testing::kEncode32Nearest);
      }
    }
  }
}

// Rotations of random pairs with theta 1e4, for q and k alike.
template <typename T>
void CheckRotation(Dtype dtype, Direction direction, double bound) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  constexpr int64_t kHeadDim = 64, kPairs = kHeadDim / 2;
  for (const Band& band : Bands()) {
    const int64_t tokens = static_cast<int64_t>(band.positions.size());
    RopeRequest request;
    request.spec.preset = "rope-half-split";
    request.positions = PositionTensor{Dtype::kFloat64, {tokens}};
    request.tensors = {{dtype, {tokens, 1, kHeadDim}, {}}};
    request.direction = direction;
    auto prepared = PrepareRope(request, Compile(), "item");
    ASSERT_TRUE(prepared.ok()) << prepared.status();
    prepared->positions.data = reinterpret_cast<const std::byte*>(band.positions.data());
    Tensor x(dtype, tokens * kHeadDim);
    x.Fill(11);
    Tensor y(dtype, tokens * kHeadDim);
    const std::byte* const in[] = {x.data()};
    std::byte* const out[] = {y.data()};
    const Job jobs[] = {MakeRotaryJob(*prepared, in, out)};
    ASSERT_TRUE(backend->Run(jobs).ok());
    Worst worst;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t j = 0; j < kPairs; ++j) {
        const Real turns = SinusoidTurns(Real(band.positions[t]), j, kPairs) *
                           (direction == Direction::kInverse ? -1 : 1);
        const Real s = testing::TrueSinTurns(turns), c = testing::TrueCosTurns(turns);
        const Real x1 = x[t * kHeadDim + j], x2 = x[t * kHeadDim + j + kPairs];
        const double norm = static_cast<double>(sqrt(x1 * x1 + x2 * x2));
        const double phi = testing::PhaseError(band.positions[t], 0.16) * norm;
        const double allowed = bound * norm + phi;
        const Real want1 = x1 * c - x2 * s, want2 = x1 * s + x2 * c;
        Note(static_cast<T>(y[t * kHeadDim + j]), want1, allowed, phi, &worst);
        Note(static_cast<T>(y[t * kHeadDim + j + kPairs]), want2, allowed, phi, &worst);
      }
    }
    Print("rope " + std::string(Name(dtype)) +
              (direction == Direction::kInverse ? " inverse, " : ", ") + band.name,
          worst);
    EXPECT_LE(worst.excess, 1.0);
  }
}

TEST(AccuracyTest, RotationOfFloat32KeepsItsContract) {
  CheckRotation<float>(Dtype::kFloat32, Direction::kForward, testing::kRotary32);
  CheckRotation<float>(Dtype::kFloat32, Direction::kInverse, testing::kRotary32);
}

TEST(AccuracyTest, RotationOfFloat64KeepsItsContract) {
  CheckRotation<double>(Dtype::kFloat64, Direction::kForward, testing::kRotary64);
}

TEST(AccuracyTest, SumOfTwoAxesKeepsItsContract) {
  const auto backend = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
  Spec spec;
  spec.preset = "grid-2d-sum";
  spec.dim = 32;
  EncodeRequest request;
  request.spec = spec;
  const std::vector<double> at = {0, 0, 1, 2, 1023, 4095, 131071, 1, 16777216, 1048575};
  request.positions = PositionTensor{Dtype::kFloat64, {static_cast<int64_t>(at.size() / 2), 2}};
  auto prepared = PrepareEncode(request, Compile(), "item");
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  prepared->positions.data = reinterpret_cast<const std::byte*>(at.data());
  Tensor out(Dtype::kFloat32, prepared->output_bytes / 4);
  const Job jobs[] = {MakeEncodeJob(*prepared, nullptr, out.data())};
  ASSERT_TRUE(backend->Run(jobs).ok());
  for (size_t t = 0; t < at.size() / 2; ++t) {
    for (int64_t c = 0; c < 32; ++c) {
      Real want = 0;
      for (int a = 0; a < 2; ++a) {
        const Real turns = SinusoidTurns(Real(at[2 * t + a]), c / 2, 16);
        want += c % 2 == 0 ? testing::TrueSinTurns(turns) : testing::TrueCosTurns(turns);
      }
      EXPECT_LE(static_cast<double>(abs(Real(out[t * 32 + c]) - want)), testing::kSumAbsolute)
          << t << " " << c;
    }
  }
}

}  // namespace
}  // namespace phasor
