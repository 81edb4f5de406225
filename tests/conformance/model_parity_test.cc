// SPDX-License-Identifier: Apache-2.0
// Rotates what the attention layers of transformers' models rotate (model_parity.py), with the spec
// of the model_type alone. BFLOAT16 and FLOAT16 under PRECISION_PARITY must have upstream's bits;
// FLOAT32 under PRECISION_EXACT must be as near as upstream's own rounding allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "kernels/base/status_macros.h"
#include "kernels/plan/parity/rounding.h"
#include "kernels/request/request.h"
#include "tests/support/backends.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tensors.h"

namespace phasor {
namespace {

using nlohmann::json;
using testing::Tensor;

const json& LayerCases() {
  static const json& cases = *new json([] {
    const char* const live = std::getenv("PHASOR_MODEL_PARITY");
    return json::parse(std::ifstream(
        live != nullptr ? live : PHASOR_CONFORMANCE_FOLDER "/configs/model_parity.json"));
  }());
  return cases;
}

Dtype DtypeNamed(const std::string& name) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    if (Name(dtype) == name) return dtype;
  }
  ADD_FAILURE() << name;
  return Dtype::kFloat32;
}

// The types in which a model's code rounds sines and cosines, and products and sums.
ParityArithmetic Steps(ParityType table, ParityType math) {
  ParityArithmetic steps;
  steps.frequency = ParityFrequency::kFloat32Pow;
  steps.angle = ParityType::kFloat32;
  steps.table = table;
  steps.math = math;
  return steps;
}

std::vector<ParityArithmetic> KnownSteps() {
  using enum ParityType;
  return {Steps(kModel, kModel),   Steps(kModel, kFloat32),   Steps(kFloat32, kFloat32),
          Steps(kFloat32, kModel), Steps(kFloat32, kFloat64), Steps(kFloat64, kFloat64)};
}

Spec SpecOfLayer(const json& golden) {
  Spec spec;
  spec.config_json = golden["config"].dump();
  spec.head_dim = golden["head_dim"].get<int64_t>();
  if (!golden["kind"].get<std::string>().empty()) spec.layer_type = golden["kind"];
  return spec;
}

// Upstream's frequencies come out of a libm, and some are off by their last bit. At positions
// beyond a context that bit would show in most lanes, so that the steps after it could not be
// compared.
absl::StatusOr<std::shared_ptr<const Plan>> WithFrequenciesOf(const json& upstream,
                                                              const ResolvedSpec& spec) {
  PHASOR_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> compiled, CompilePlan(spec));
  if (upstream.empty() || !compiled->parity.has_value()) return compiled;
  auto plan = std::make_shared<Plan>(*compiled);
  for (double& own : plan->parity->frequency) {
    double nearest = own;
    for (const json& value : upstream) {
      const auto theirs = static_cast<double>(value.get<float>());
      const double apart = std::abs(std::abs(own) - theirs);
      if (apart <= std::abs(own) * 0x1p-22) nearest = std::copysign(theirs, own);
    }
    own = nearest;
  }
  return plan;
}

// What the layer passes to its rotation, rotated by `spec` with those frequencies.
absl::StatusOr<Tensor> Rotate(const json& golden, const Spec& spec, const json& inv_freq) {
  const json& positions = golden["positions"];
  const auto tokens = static_cast<int64_t>(positions.size());
  const auto axes = static_cast<int64_t>(positions[0].size());
  const int64_t width = golden["head_dim"];
  const Dtype dtype = DtypeNamed(golden["dtype"]);
  Tensor at(Dtype::kFloat64, tokens * axes), x(dtype, tokens * width), y(dtype, tokens * width);
  for (int64_t i = 0; i < at.count(); ++i) {
    at.Set(i, positions[static_cast<size_t>(i / axes)][static_cast<size_t>(i % axes)]);
  }
  for (int64_t i = 0; i < x.count(); ++i) {
    x.Set(i, static_cast<double>(i % width * 37 % 101 - 50) / 16);
  }
  RopeRequest request;
  request.spec = spec;
  PositionTensor shape{Dtype::kFloat64, {tokens}};
  if (axes > 1) shape.shape.push_back(axes);
  request.positions = shape;
  request.tensors = {{dtype, {tokens, 1, width}, {}}};
  const auto compile = [&](const ResolvedSpec& resolved) {
    return WithFrequenciesOf(inv_freq, resolved);
  };
  auto prepared = PrepareRope(request, compile, "item");
  if (!prepared.ok()) return prepared.status();
  prepared->positions.data = at.data();
  const std::byte* const from[] = {x.data()};
  std::byte* const to[] = {y.data()};
  const Job jobs[] = {MakeRotaryJob(*prepared, from, to)};
  static Backend* const backend =
      cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1}).release();
  EXPECT_THAT(backend->Run(jobs), testing::IsOk());
  return y;
}

struct Difference {
  int lanes = 0;
  int differ = 0;
  double furthest = 0;
};

Difference Compare(const json& golden, const Tensor& y) {
  Difference found;
  const int64_t width = golden["head_dim"];
  for (size_t t = 0; t < golden["positions"].size(); ++t) {
    for (size_t i = 0; i < golden["lanes"].size(); ++i) {
      const int64_t lane = golden["lanes"][i];
      const double got = y[static_cast<int64_t>(t) * width + lane];
      // Kept with nine digits, which tell the numbers of a type apart but are not those numbers.
      const double want = parity::Round(y.dtype(), golden["rotated"][t][i].get<double>());
      const double apart = std::abs(got - want);
      found.lanes += 1;
      found.differ += apart != 0;
      found.furthest = std::max(found.furthest, apart);
    }
  }
  return found;
}

// A sine of f32 comes out of a libm, and may be off by its last bit. A lane that differs for that
// reason is no further away than one unit in the last place of the largest lane.
double OneUnit(const json& golden) { return golden["dtype"] == "BFLOAT16" ? 0x1p-6 : 0x1p-9; }

TEST(ModelParityTest, AttentionLayersRotateToTheBitsOfUpstream) {
  std::map<std::string, Difference> classes;
  std::set<std::string> refused, failed;
  std::map<std::string, json> inv_freq;
  for (const json& golden : LayerCases()) {
    const std::string name = golden["name"];
    if (golden.contains("failure")) {
      failed.insert(name);
      std::cerr << name << ": the layer does not run alone: " << golden["failure"] << "\n";
      continue;
    }
    if (golden["dtype"] == "FLOAT32") continue;
    SCOPED_TRACE(name + " in " + golden["dtype"].get<std::string>());
    if (golden.contains("inv_freq")) inv_freq[name] = golden["inv_freq"];
    Spec spec = SpecOfLayer(golden);
    spec.precision = Precision::kParity;
    // The class's own steps, if its table has them; else the ones that give upstream's bits.
    std::vector<Difference> found;
    if (auto y = Rotate(golden, spec, inv_freq[name]); y.ok()) {
      found.push_back(Compare(golden, *y));
    } else {
      for (const ParityArithmetic& steps : KnownSteps()) {
        spec.parity = steps;
        const auto tried = Rotate(golden, spec, inv_freq[name]);
        if (!tried.ok()) {
          EXPECT_THAT(std::string(tried.status().message()), ::testing::HasSubstr("item.spec."));
          refused.insert(name + ": " + std::string(tried.status().message()));
          break;
        }
        found.push_back(Compare(golden, *tried));
      }
    }
    if (found.empty()) continue;
    const Difference best = *std::min_element(
        found.begin(), found.end(),
        [](const Difference& a, const Difference& b) { return a.differ < b.differ; });
    EXPECT_LE(best.furthest, OneUnit(golden));
    EXPECT_LE(best.differ, 1);
    Difference& sum = classes[name];
    sum.lanes += best.lanes;
    sum.differ += best.differ;
    sum.furthest = std::max(sum.furthest, best.furthest);
  }
  int lanes = 0, differ = 0, exact = 0;
  for (const auto& [name, sum] : classes) {
    lanes += sum.lanes;
    differ += sum.differ;
    exact += sum.differ == 0;
    if (sum.differ != 0) {
      std::cerr << name << ": " << sum.differ << " of " << sum.lanes
                << " lanes differ, a sine's last bit in upstream's libm\n";
    }
  }
  for (const std::string& what : refused) std::cerr << what << "\n";
  std::cerr << classes.size() << " kinds of layers in bf16 and f16: " << exact
            << " have all of upstream's bits, " << differ << " of " << lanes
            << " lanes differ by a sine's last bit; " << refused.size() << " refused, "
            << failed.size() << " do not run alone\n";
  EXPECT_GT(exact, 0);
}

TEST(ModelParityTest, AttentionLayersInFloat32AreWithinUpstreamsRounding) {
  int compared = 0;
  for (const json& golden : LayerCases()) {
    if (golden.contains("failure") || golden["dtype"] != "FLOAT32") continue;
    SCOPED_TRACE(golden["name"].get<std::string>());
    const auto y = Rotate(golden, SpecOfLayer(golden), json::array());
    if (!y.ok()) continue;  // named by the other test
    double furthest = 0;
    for (const json& row : golden["positions"]) {
      for (const json& p : row) furthest = std::max(furthest, p.get<double>());
    }
    // Frequency and angle are rounded to f32, so the angle of the fastest pair is off by its half
    // unit twice; lanes are at most 50 / 16.
    const double allowed = 2 * 50.0 / 16 * (furthest * 0x1p-22 + 0x1p-21);
    EXPECT_LE(Compare(golden, *y).furthest, allowed);
    compared += 1;
  }
  std::cerr << compared << " kinds of layers in f32 are within upstream's rounding\n";
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace phasor
