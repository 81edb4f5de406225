// SPDX-License-Identifier: Apache-2.0
// bench_plan: times the compilation of a user's spec into a plan, and lookups in the server's
// cache.
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/harness.h"
#include "kernels/plan/frequencies.h"
#include "kernels/plan/plan.h"
#include "kernels/spec/spec.h"
#include "server/engine/plan_cache.h"

namespace phasor::bench {
namespace {

using PlanPtr = std::shared_ptr<const Plan>;

Spec RotarySpec(double theta, int64_t pairs) {
  Spec spec;
  spec.preset = "rope-half-split";
  spec.rope_theta = theta;
  spec.head_dim = 2 * pairs;
  return spec;
}

Spec EncodingSpec(double theta, int64_t pairs) {
  Spec spec;
  spec.preset = "transformer";
  spec.rope_theta = theta;
  spec.dim = 2 * pairs;
  return spec;
}

ResolvedSpec Resolve(const Spec& spec) {
  auto resolved = ResolveSpec(spec);
  if (!resolved.ok()) Die(resolved.status().ToString());
  return *std::move(resolved);
}

PlanPtr Compile(const Spec& spec) {
  auto plan = CompilePlan(Resolve(spec));
  if (!plan.ok()) Die(plan.status().ToString());
  return *std::move(plan);
}

// The plan's frequencies must be theta^(-j / pairs), as exactly as doubles can tell.
void Check(const Plan& plan, double theta) {
  for (size_t j = 0; j < plan.frequency.size(); ++j) {
    const double want =
        std::pow(theta, -static_cast<double>(j) / static_cast<double>(plan.frequency.size()));
    if (std::abs(RadiansPerUnit(plan.frequency[j]) - want) > 1e-14) Die("wrong frequencies");
  }
}

Row PlanRow(const std::string& name, const std::string& shape) {
  return {.name = name, .shape = shape, .unit = "us"};
}

void Bench(const Arguments& arguments, Report& report, const std::string& kind,
           Spec (*make_spec)(double, int64_t), int64_t pairs, double limit_us) {
  Check(*Compile(make_spec(10000, pairs)), 10000);
  engine::PlanCache cache(64 << 20);
  const Spec known = make_spec(10000, pairs);
  double theta = 10000;  // a new base each time, so that no cache can help
  const auto seconds =
      MedianSeconds(arguments, {{[&] { Compile(make_spec(theta += 1, pairs)); }}, {[&] {
                                  if (!cache.Get(Resolve(known)).ok()) Die("the cache has no plan");
                                }}});
  const std::string shape = absl::StrCat(pairs, " pairs ", kind);
  const double uncached_us = seconds[0] * 1e6;
  Row uncached = PlanRow("plan", shape);
  uncached.baseline = "limit";
  report.Add(CostRow(std::move(uncached), uncached_us, limit_us, 1.0));
  Row cached = PlanRow("plan_cached", shape);
  cached.baseline = "not cached";
  report.Add(CostRow(std::move(cached), seconds[1] * 1e6, uncached_us));
}

int Main(int argc, char** argv) {
  const Arguments arguments = ParseArguments(argc, argv);
  Report report("bench_plan", arguments, "any");
  for (const auto& [pairs, limit_us] : {std::pair<int64_t, double>{64, 100}, {768, 1000}}) {
    Bench(arguments, report, "rotary", RotarySpec, pairs, limit_us);
    Bench(arguments, report, "encoding", EncodingSpec, pairs, limit_us);
  }
  return report.Finish();
}

}  // namespace
}  // namespace phasor::bench

int main(int argc, char** argv) { return phasor::bench::Main(argc, argv); }
