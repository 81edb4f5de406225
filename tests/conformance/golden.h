// SPDX-License-Identifier: Apache-2.0
// The golden values of this folder as C++ values. generate.py writes and describes them.
#ifndef PHASOR_TESTS_CONFORMANCE_GOLDEN_H_
#define PHASOR_TESTS_CONFORMANCE_GOLDEN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"
#include "kernels/spec/spec.h"
#include "tests/support/truth.h"

namespace phasor::testing {

template <typename T>
using Table = std::vector<std::vector<T>>;

// What a spec means and what an upstream package computes for it. Numbers named truth come from the
// formula in 300-bit arithmetic.
struct GoldenCase {
  std::string name;
  std::string preset;  // empty: a convention that no preset stands for
  std::string given;   // JSON of phasor.v1.Spec: what is set beside the preset
  std::string spec;    // the same without a preset: everything
  std::string upstream;
  std::string arithmetic;  // the steps that upstream rounds
  bool encoding = false;
  std::string output;       // of tables, an EncodeOutput without its prefix
  Table<double> positions;  // [position, axis]

  int64_t pairs = 0;                     // of all heads
  std::vector<int64_t> frequency_pairs;  // the pairs that the next two are of
  std::vector<Real> inv_freq;  // truth, radians per unit; empty when every axis has its own
  std::vector<int64_t> axis;
  double attention_factor = 1;  // truth, rounded

  std::vector<int64_t> samples;  // pairs; columns of encodings and tables
  Table<Real> cos, sin;          // truth [position, sample], amplitude included; rotations only
  Table<Real> values;            // truth [position, sample]; encodings and tables only
  std::vector<double> upstream_inv_freq;  // of frequency_pairs, where upstream shows them; f32
  Table<double> upstream_cos, upstream_sin, upstream_values;

  // Upstream's rotation of InputLane(0), InputLane(1), ... in some dtype.
  struct Rotated {
    Dtype dtype = Dtype::kFloat32;
    std::vector<int64_t> positions;  // indices into GoldenCase::positions
    std::vector<int64_t> lanes;
    Table<double> values;  // [position, lane]
  };
  std::vector<Rotated> upstream_rotated;
};

// Lane i of what upstream rotated.
inline double InputLane(int64_t i) { return static_cast<double>(i * 37 % 101 - 50) / 16; }

// Every case of every file in `folder`, in the order of their names.
std::vector<GoldenCase> ReadGoldenCases(const std::string& folder);

// INVALID_ARGUMENT: not JSON of phasor.v1.Spec; a field that does not exist is named.
absl::StatusOr<Spec> SpecFromJson(const std::string& json);

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_CONFORMANCE_GOLDEN_H_
