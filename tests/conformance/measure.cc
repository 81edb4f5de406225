// SPDX-License-Identifier: Apache-2.0
// Runs golden cases on the scalar backend and compares the results.
#include "tests/conformance/measure.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/functional/function_ref.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/request/request.h"
#include "kernels/spec/names.h"
#include "tests/support/direct.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace phasor::testing {
namespace {

PlanProvider Compile() {
  static const auto compile = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
  return compile;
}

// f64 positions, [positions] or [positions, axes].
struct PositionData {
  explicit PositionData(const Table<double>& positions)
      : tensor(Dtype::kFloat64, static_cast<int64_t>(positions.size() * positions[0].size())) {
    int64_t i = 0;
    for (const auto& row : positions) {
      for (const double x : row) tensor.Set(i++, x);
    }
    spec.dtype = Dtype::kFloat64;
    spec.shape = {static_cast<int64_t>(positions.size())};
    if (positions[0].size() > 1) spec.shape.push_back(static_cast<int64_t>(positions[0].size()));
  }
  Tensor tensor;
  PositionTensor spec;
};

void RunJob(const Job& job) {
  static const auto& backend = *cpu::MakeCpuBackend({cpu::Target::kScalar, 1}).release();
  EXPECT_TRUE(const_cast<Backend&>(backend).Run({&job, 1}).ok());
}

absl::StatusOr<EncodeOutput> OutputNamed(std::string_view name) {
  for (int i = 0; i < EnumeratorCount<EncodeOutput>(); ++i) {
    const auto output = static_cast<EncodeOutput>(i);
    if (Name(output) == name) return output;
  }
  return absl::InvalidArgumentError(StrCat("case.output: ", name, "; must be an EncodeOutput"));
}

absl::StatusOr<Samples> Encode(const GoldenCase& golden, const Spec& spec, Dtype dtype) {
  PositionData positions(golden.positions);
  EncodeRequest request;
  request.spec = spec;
  request.positions = positions.spec;
  request.output_dtype = dtype;
  if (!golden.output.empty()) {
    PHASOR_ASSIGN_OR_RETURN(request.output, OutputNamed(golden.output));
  }
  PHASOR_ASSIGN_OR_RETURN(PreparedEncode prepared, PrepareEncode(request, Compile(), "case"));
  prepared.positions.data = positions.tensor.data();
  Tensor out(dtype, prepared.output_bytes / SizeOf(dtype));
  RunJob(MakeEncodeJob(prepared, nullptr, out.data()));
  const int64_t width = prepared.layout->width;
  Samples samples;
  for (size_t p = 0; p < golden.positions.size(); ++p) {
    auto& row = samples.values.emplace_back();
    for (const int64_t column : golden.samples) {
      row.push_back(out[static_cast<int64_t>(p) * width + column]);
    }
  }
  return samples;
}

// A rotated tensor [positions, heads, head_dim].
struct Heads {
  ResolvedSpec spec;
  int64_t heads = 0;
  Tensor values;

  double At(int64_t position, int64_t head, int64_t lane) const {
    return values[(position * heads + head) * spec.head_dim + lane];
  }
};

// Rotates, at every position, heads whose lane i is lane(i).
absl::StatusOr<Heads> Rotate(const GoldenCase& golden, const Spec& spec, Dtype dtype,
                             absl::FunctionRef<double(const ResolvedSpec&, int64_t)> lane) {
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(spec, "case.spec"));
  PositionData positions(golden.positions);
  const auto tokens = static_cast<int64_t>(golden.positions.size());
  const int64_t heads = golden.pairs / (resolved.rotary_dim / 2);
  RopeRequest request;
  request.spec = spec;
  request.positions = positions.spec;
  request.tensors = {{dtype, {tokens, heads, resolved.head_dim}, {}}};
  PHASOR_ASSIGN_OR_RETURN(PreparedRope prepared, PrepareRope(request, Compile(), "case"));
  prepared.positions.data = positions.tensor.data();
  Tensor x(dtype, tokens * heads * resolved.head_dim);
  for (int64_t i = 0; i < x.count(); ++i) x.Set(i, lane(resolved, i % resolved.head_dim));
  Tensor y(dtype, x.count());
  const std::byte* const in[] = {x.data()};
  std::byte* const out[] = {y.data()};
  RunJob(MakeRotaryJob(prepared, in, out));
  return Heads{resolved, heads, std::move(y)};
}

// 1 in the first lane of every pair and 0 in the second: they turn to cosine and sine.
double FirstOfPair(const ResolvedSpec& spec, int64_t lane) {
  for (int64_t pair = 0; pair < spec.rotary_dim / 2; ++pair) {
    if (testing::LaneOf(spec, spec.pairing, pair, 0) == lane) return 1;
  }
  return 0;
}

absl::StatusOr<Samples> CosAndSin(const GoldenCase& golden, const Spec& spec, Dtype dtype) {
  PHASOR_ASSIGN_OR_RETURN(const Heads y, Rotate(golden, spec, dtype, FirstOfPair));
  const int64_t pairs = y.spec.rotary_dim / 2;
  Samples samples;
  for (size_t p = 0; p < golden.positions.size(); ++p) {
    auto& cos = samples.cos.emplace_back();
    auto& sin = samples.sin.emplace_back();
    for (const int64_t sample : golden.samples) {
      const auto value = [&](int component) {
        return y.At(static_cast<int64_t>(p), sample / pairs,
                    testing::LaneOf(y.spec, y.spec.pairing_out, sample % pairs, component));
      };
      cos.push_back(value(0));
      sin.push_back(value(1));
    }
  }
  return samples;
}

// Radians by which phases may be off at a position.
double PhaseErrorAt(const GoldenCase& golden, const std::vector<double>& position) {
  double largest_frequency = 1;
  for (const Real& f : golden.inv_freq) {
    largest_frequency = std::max(largest_frequency, std::abs(static_cast<double>(f)));
  }
  double sum = 0;
  for (const double x : position) sum += PhaseError(x, largest_frequency);
  return sum;
}

void Compare(const GoldenCase& golden, const char* what, const Table<double>& got,
             const Table<Real>& want, double base, Difference* out) {
  for (size_t p = 0; p < want.size(); ++p) {
    // Amplitudes other than 1 are rounded, and multiply what is there.
    double scale = 1;
    for (const Real& value : want[p]) scale = std::max(scale, static_cast<double>(abs(value)));
    const double allowed = scale * (base + PhaseErrorAt(golden, golden.positions[p]));
    for (size_t s = 0; s < want[p].size(); ++s) {
      const double difference = std::abs(static_cast<double>(Real(got[p][s]) - want[p][s]));
      const double share = difference / allowed;
      out->largest = std::max(out->largest, difference);
      if (share > out->largest_share || std::isnan(share)) {
        out->largest_share = std::isnan(share) ? 1e300 : share;
        out->allowed = allowed;
        out->where =
            StrCat(what, " of sample ", golden.samples[s], " at position ", golden.positions[p][0],
                   ": ", got[p][s], " instead of ", want[p][s].str(20));
      }
    }
  }
}

}  // namespace

absl::StatusOr<Samples> Compute(const GoldenCase& golden, const Spec& spec, Dtype dtype) {
  const bool rows = golden.encoding || !golden.output.empty();
  return rows ? Encode(golden, spec, dtype) : CosAndSin(golden, spec, dtype);
}

Difference FromTruth(const GoldenCase& golden, const Spec& spec, const Samples& got) {
  Difference difference;
  const bool sum = spec.grouping == AxisGrouping::kSum;
  Compare(golden, "value", got.values, golden.values, (sum ? 2 : 1) * kEncode64Absolute,
          &difference);
  Compare(golden, "cosine", got.cos, golden.cos, 2 * kRotary64, &difference);
  Compare(golden, "sine", got.sin, golden.sin, 2 * kRotary64, &difference);
  return difference;
}

namespace {

// Radians to which one unit in the last place of an f32 frequency turns: where upstream's
// frequencies come out of a libm, they may be so much off.
double TurnOfOneUnit(const GoldenCase& golden, const std::vector<double>& position) {
  double fastest = 0;
  for (const Real& f : golden.inv_freq) fastest = std::max(fastest, static_cast<double>(abs(f)));
  double sum = 0;
  for (const double x : position) sum += std::abs(x) * fastest * 0x1p-23;
  return sum;
}

}  // namespace

Difference FromUpstream(const GoldenCase& golden, const Samples& got) {
  Difference difference;
  const auto compare = [&](const Table<double>& ours, const Table<double>& theirs) {
    for (size_t p = 0; p < theirs.size(); ++p) {
      const double turned = TurnOfOneUnit(golden, golden.positions[p]);
      for (size_t s = 0; s < theirs[p].size(); ++s) {
        const Real want(theirs[p][s]);
        const double ulps = UlpError(static_cast<float>(ours[p][s]), want);
        // A factor is a second rounding.
        const double allowed = (golden.attention_factor == 1 ? 1 : 2) +
                               turned / static_cast<double>(UlpAt<float>(want));
        difference.largest = std::max(difference.largest, ulps);
        ++difference.count;
        if (ulps <= 1) ++difference.close;
        if (ulps / allowed <= difference.largest_share) continue;
        difference.largest_share = ulps / allowed;
        difference.allowed = allowed;
        difference.where =
            StrCat("sample ", golden.samples[s], " at position ", golden.positions[p][0], ": ",
                   ours[p][s], ", upstream ", theirs[p][s]);
      }
    }
  };
  compare(got.values, golden.upstream_values);
  compare(got.cos, golden.upstream_cos);
  compare(got.sin, golden.upstream_sin);
  return difference;
}

absl::StatusOr<Difference> FromUpstreamRotation(const GoldenCase& golden, const Spec& spec,
                                                const GoldenCase::Rotated& upstream) {
  const auto input = [](const ResolvedSpec&, int64_t lane) { return InputLane(lane); };
  PHASOR_ASSIGN_OR_RETURN(const Heads y, Rotate(golden, spec, upstream.dtype, input));
  // One unit in the last place of the table is so much of the largest lane, 50 / 16.
  const double unit = upstream.dtype == Dtype::kFloat32 ? 0x1p-24 : 0x1p-9;
  Difference difference;
  for (size_t p = 0; p < upstream.positions.size(); ++p) {
    const auto& position = golden.positions[upstream.positions[p]];
    const double allowed =
        8 * std::max(1.0, y.spec.attention_factor) * (unit + TurnOfOneUnit(golden, position));
    for (size_t i = 0; i < upstream.lanes.size(); ++i) {
      const double got = y.At(upstream.positions[p], 0, upstream.lanes[i]);
      const double apart = std::abs(got - upstream.values[p][i]);
      difference.largest = std::max(difference.largest, apart);
      if (apart / allowed <= difference.largest_share) continue;
      difference.largest_share = apart / allowed;
      difference.allowed = allowed;
      difference.where = StrCat("lane ", upstream.lanes[i], ": ", got, ", upstream ",
                                upstream.values[p][i], " in ", Name(upstream.dtype));
    }
  }
  return difference;
}

}  // namespace phasor::testing
