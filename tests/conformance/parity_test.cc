// SPDX-License-Identifier: Apache-2.0
// Compares PRECISION_PARITY with the rounded results of upstream packages (parity.py). Frequencies
// and tables may differ by 1 ulp, because upstream uses a libm. Rotations must be bit-identical
// where the sine and cosine of a pair have the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/plan/parity/rounding.h"
#include "kernels/request/request.h"
#include "tests/conformance/golden.h"
#include "tests/support/backends.h"
#include "tests/support/direct.h"
#include "tests/support/specs.h"
#include "tests/support/tensors.h"

namespace phasor {
namespace {

using nlohmann::json;
using testing::Tensor;

constexpr Dtype kF64 = Dtype::kFloat64;

const json& Cases() {
  static const json* const cases = [] {
    auto* const all = new json(json::array());
    for (const char* name : {"parity", "configs"}) {
      const std::string folder = PHASOR_CONFORMANCE_FOLDER "/golden/parity/";
      const json file = json::parse(std::ifstream(folder + name + ".json"));
      all->insert(all->end(), file.begin(), file.end());
    }
    return all;
  }();
  return *cases;
}

Dtype DtypeNamed(const std::string& name) {
  for (const Dtype dtype : {kF64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    if (Name(dtype) == name) return dtype;
  }
  ADD_FAILURE() << name;
  return kF64;
}

// The gap between neighbours of `type` at x.
double UlpOf(Dtype type, double x) {
  const int digits = type == kF64              ? 53
                     : type == Dtype::kFloat32 ? 24
                     : type == Dtype::kFloat16 ? 11
                                               : 8;
  const int lowest = type == Dtype::kFloat16 ? -13 : type == kF64 ? -1021 : -125;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1, std::max(exponent, lowest) - digits);
}

Dtype TypeOf(ParityType type, Dtype model) {
  switch (type) {
    case ParityType::kFloat64:
      return kF64;
    case ParityType::kFloat32:
      return Dtype::kFloat32;
    case ParityType::kFloat16:
      return Dtype::kFloat16;
    case ParityType::kBFloat16:
      return Dtype::kBFloat16;
    case ParityType::kModel:
      return model;
  }
  return model;
}

absl::StatusOr<std::shared_ptr<const Plan>> Compile(const ResolvedSpec& spec) {
  return CompilePlan(spec);
}

Backend& TheBackend() {
  static Backend* const backend =
      cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1}).release();
  return *backend;
}

class ParityConformanceTest : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    golden_ = &Cases()[GetParam()];
    auto spec = testing::SpecFromJson(golden()["spec"].dump());
    ASSERT_THAT(spec, testing::IsOk());
    spec_ = *spec;
    const auto resolved = ResolveSpec(spec_);
    if (!resolved.ok() && resolved.status().code() == absl::StatusCode::kUnimplemented) {
      GTEST_SKIP() << resolved.status();
    }
    ASSERT_THAT(resolved, testing::IsOk());
    const auto plan = CompilePlan(*resolved);
    ASSERT_THAT(plan, testing::IsOk());
    plan_ = *plan;
    for (const json& row : golden()["positions"]) {
      for (const json& p : row) positions_.push_back(p.get<double>());
    }
    tokens_ = static_cast<int64_t>(golden()["positions"].size());
    model_ = DtypeNamed(golden()["dtype"]);
  }

  const json& golden() const { return *golden_; }
  // Kept with nine digits, which tell the numbers of `type` apart but are not those numbers.
  double Golden(const char* field, int64_t i, Dtype type) const {
    return parity::Round(type, golden()[field][i].get<double>());
  }

  Dtype FrequencyType() const {
    const ParityArithmetic& steps = *plan_->spec.parity;
    const bool wide = steps.frequency == ParityFrequency::kFloat64;
    return TypeOf(
        steps.frequency_storage.value_or(wide ? ParityType::kFloat64 : ParityType::kFloat32),
        model_);
  }

  PositionTensor PositionsShape() const {
    PositionTensor shape{kF64, {tokens_}};
    if (plan_->spec.axes > 1) shape.shape.push_back(plan_->spec.axes);
    return shape;
  }
  void Point(PositionSource& source) const {
    source.data = reinterpret_cast<const std::byte*>(positions_.data());
  }

  // Rotates upstream's input; `x` may replace it.
  Tensor Rotate(const Spec& spec, const Tensor& x) const {
    RopeRequest request;
    request.spec = spec;
    request.positions = PositionsShape();
    request.tensors = {{x.dtype(), {tokens_, 1, x.count() / tokens_}, {}}};
    auto prepared = PrepareRope(request, Compile, "item");
    EXPECT_THAT(prepared, testing::IsOk());
    Point(prepared->positions);
    Tensor y(x.dtype(), x.count());
    const std::byte* const from[] = {x.data()};
    std::byte* const to[] = {y.data()};
    const Job jobs[] = {MakeRotaryJob(*prepared, from, to)};
    EXPECT_THAT(TheBackend().Run(jobs), testing::IsOk());
    return y;
  }

  // The table that the model's tensors meet: what turns (1, 0) into (cos, sin), rounding nothing.
  SinCos<double> Table(const Tensor& turned, int64_t token, int64_t pair) const {
    const ResolvedSpec& spec = plan_->spec;
    const auto lane = [&](int component) {
      return token * spec.head_dim + testing::LaneOf(spec, spec.pairing_out, pair, component);
    };
    return {turned[lane(1)], turned[lane(0)]};
  }

  Tensor Units() const {
    const ResolvedSpec& spec = plan_->spec;
    Tensor x(kF64, tokens_ * spec.head_dim);
    for (int64_t i = 0; i < x.count(); ++i) x.Set(i, 0);
    for (int64_t i = 0; i < tokens_ * spec.rotary_dim / 2; ++i) {
      const int64_t token = i / (spec.rotary_dim / 2), pair = i % (spec.rotary_dim / 2);
      x.Set(token * spec.head_dim + testing::LaneOf(spec, spec.pairing, pair, 0), 1);
    }
    return x;
  }

  const json* golden_ = nullptr;
  Spec spec_;
  std::shared_ptr<const Plan> plan_;
  std::vector<double> positions_;
  int64_t tokens_ = 0;
  Dtype model_ = kF64;
};

TEST_P(ParityConformanceTest, FrequenciesAreUpstreamsWithinOneUlp) {
  const auto& got = plan_->parity->frequency;
  ASSERT_EQ(got.size(), golden()["inv_freq"].size());
  int differ = 0;
  for (size_t j = 0; j < got.size(); ++j) {
    const double want = Golden("inv_freq", static_cast<int64_t>(j), FrequencyType());
    EXPECT_LE(std::abs(got[j] - want), UlpOf(FrequencyType(), want)) << "pair " << j;
    if (got[j] != want) ++differ;
  }
  RecordProperty("differ", differ);
}

TEST_P(ParityConformanceTest, TablesAndRotationsAreUpstreams) {
  if (plan_->spec.kind != SpecKind::kRotary) GTEST_SKIP() << "an encoding";
  // Upstream's own frequencies: what is compared from here on is arithmetic.
  auto plan = std::make_shared<Plan>(*plan_);
  for (size_t j = 0; j < plan->parity->frequency.size(); ++j) {
    plan->parity->frequency[j] = Golden("inv_freq", static_cast<int64_t>(j), FrequencyType());
  }
  const Dtype table = plan->parity->TableType(model_);
  const ResolvedSpec& spec = plan->spec;
  const int64_t pairs = spec.rotary_dim / 2;
  PositionSource source = *MakePositionSource(Positions(PositionsShape()), spec.axes, "positions");
  Point(source);
  const auto rotate = [&](const Plan& with, const Tensor& x) {
    RotaryJob job;
    job.plan = &with;
    job.positions = &source;
    job.tokens = tokens_;
    Tensor y(x.dtype(), x.count());
    const int64_t bytes = spec.head_dim * SizeOf(x.dtype());
    job.tensors = {{x.dtype(), 1, x.data(), {0, bytes, bytes}, y.data(), {0, bytes, bytes}, {}}};
    const Job jobs[] = {job};
    EXPECT_THAT(TheBackend().Run(jobs), testing::IsOk());
    return y;
  };
  Plan units = *plan;
  units.parity->table = table;
  units.parity->math = kF64;
  const Tensor tables = rotate(units, Units());
  Tensor x(model_, tokens_ * spec.head_dim);
  for (int64_t i = 0; i < x.count(); ++i) x.Set(i, Golden("x", i, model_));
  const Tensor y = rotate(*plan, x);
  int64_t same = 0;
  for (int64_t t = 0; t < tokens_; ++t) {
    for (int64_t j = 0; j < pairs; ++j) {
      const SinCos<double> got = Table(tables, t, j);
      const double cos = Golden("cos", t * pairs + j, table);
      const double sin = Golden("sin", t * pairs + j, table);
      // A 64-bit sine is true to 2^-51 (docs/numerics.md).
      const double floor = table == kF64 ? 0x1p-50 : 0;
      EXPECT_LE(std::abs(got.cos - cos), std::max(floor, UlpOf(table, cos))) << t << ", " << j;
      EXPECT_LE(std::abs(got.sin - sin), std::max(floor, UlpOf(table, sin))) << t << ", " << j;
      if (got.cos != cos || got.sin != sin) continue;
      ++same;
      for (const int component : {0, 1}) {
        const int64_t lane =
            t * spec.head_dim + testing::LaneOf(spec, spec.pairing_out, j, component);
        EXPECT_EQ(y[lane], Golden("y", lane, model_)) << "token " << t << " pair " << j;
      }
    }
  }
  std::cout << same << " of " << tokens_ * pairs << " pairs have upstream's table bits\n";
  EXPECT_GE(same * 10, tokens_ * pairs * (table == kF64 ? 5 : 8));
}

TEST_P(ParityConformanceTest, RowsAreUpstreamsWithinOneUlp) {
  if (plan_->spec.kind != SpecKind::kEncoding) GTEST_SKIP() << "rotary";
  auto plan = std::make_shared<Plan>(*plan_);
  for (size_t j = 0; j < plan->parity->frequency.size(); ++j) {
    plan->parity->frequency[j] = Golden("inv_freq", static_cast<int64_t>(j), FrequencyType());
  }
  PositionSource source =
      *MakePositionSource(Positions(PositionsShape()), plan->spec.axes, "positions");
  Point(source);
  Tensor out(model_, tokens_ * plan->spec.dim);
  EncodeJob job;
  job.plan = plan.get();
  job.positions = &source;
  job.dtype = model_;
  job.out = out.data();
  job.out_row_bytes = plan->spec.dim * SizeOf(model_);
  const Job jobs[] = {job};
  ASSERT_THAT(TheBackend().Run(jobs), testing::IsOk());
  ASSERT_EQ(static_cast<size_t>(out.count()), golden()["rows"].size());
  for (int64_t i = 0; i < out.count(); ++i) {
    const double want = Golden("rows", i, model_);
    EXPECT_LE(std::abs(out[i] - want), UlpOf(model_, want))
        << "position " << i / plan->spec.dim << " column " << i % plan->spec.dim;
  }
}

INSTANTIATE_TEST_SUITE_P(Upstream, ParityConformanceTest,
                         ::testing::Range<size_t>(0, Cases().size()), [](const auto& index) {
                           std::string name = Cases()[index.param]["name"];
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace phasor
