// SPDX-License-Identifier: Apache-2.0
// The names of a spec's enumerators, as spec.proto writes them but without their prefix. Pure
// values.
#ifndef PHASOR_KERNELS_SPEC_NAMES_H_
#define PHASOR_KERNELS_SPEC_NAMES_H_

#include <string_view>

#include "kernels/spec/spec.h"

namespace phasor {

constexpr std::string_view Name(SpecKind kind) {
  switch (kind) {
    case SpecKind::kEncoding:
      return "ENCODING";
    case SpecKind::kRotary:
      return "ROTARY";
  }
  return "?";
}

constexpr std::string_view Name(FrequencyFamily family) {
  switch (family) {
    case FrequencyFamily::kGeometric:
      return "GEOMETRIC";
    case FrequencyFamily::kPerElement:
      return "PER_ELEMENT";
    case FrequencyFamily::kPeriods:
      return "PERIODS";
    case FrequencyFamily::kPeriodsExclusive:
      return "PERIODS_EXCLUSIVE";
    case FrequencyFamily::kExplicit:
      return "EXPLICIT";
    case FrequencyFamily::kLinear:
      return "LINEAR";
    case FrequencyFamily::kLogRange:
      return "LOG_RANGE";
  }
  return "?";
}

constexpr std::string_view Name(FrequencyUnit unit) {
  switch (unit) {
    case FrequencyUnit::kRadians:
      return "RADIANS";
    case FrequencyUnit::kTurns:
      return "TURNS";
  }
  return "?";
}

constexpr std::string_view Name(TrigOrder order) {
  switch (order) {
    case TrigOrder::kSinCos:
      return "SIN_COS";
    case TrigOrder::kCosSin:
      return "COS_SIN";
    case TrigOrder::kCosOnly:
      return "COS_ONLY";
  }
  return "?";
}

constexpr std::string_view Name(Arrangement arrangement) {
  switch (arrangement) {
    case Arrangement::kInterleaved:
      return "INTERLEAVED";
    case Arrangement::kConcatenated:
      return "CONCATENATED";
  }
  return "?";
}

constexpr std::string_view Name(AxisGrouping grouping) {
  switch (grouping) {
    case AxisGrouping::kAxisMajor:
      return "AXIS_MAJOR";
    case AxisGrouping::kComponentMajor:
      return "COMPONENT_MAJOR";
    case AxisGrouping::kSum:
      return "SUM";
  }
  return "?";
}

constexpr std::string_view Name(AxisRule rule) {
  switch (rule) {
    case AxisRule::kSingle:
      return "SINGLE";
    case AxisRule::kAxial:
      return "AXIAL";
    case AxisRule::kMropeChunked:
      return "MROPE_CHUNKED";
    case AxisRule::kMropeInterleaved:
      return "MROPE_INTERLEAVED";
    case AxisRule::kList:
      return "LIST";
    case AxisRule::kMropeAlternating:
      return "MROPE_ALTERNATING";
    case AxisRule::kFrequencyMajor:
      return "FREQUENCY_MAJOR";
    case AxisRule::kDense:
      return "DENSE";
  }
  return "?";
}

constexpr std::string_view Name(Pairing pairing) {
  switch (pairing) {
    case Pairing::kHalfSplit:
      return "HALF_SPLIT";
    case Pairing::kInterleaved:
      return "INTERLEAVED";
    case Pairing::kBlockHalfSplit:
      return "BLOCK_HALF_SPLIT";
  }
  return "?";
}

constexpr std::string_view Name(OddDim odd) {
  switch (odd) {
    case OddDim::kPad:
      return "PAD";
    case OddDim::kSplit:
      return "SPLIT";
  }
  return "?";
}

constexpr std::string_view Name(Precision precision) {
  switch (precision) {
    case Precision::kExact:
      return "EXACT";
    case Precision::kParity:
      return "PARITY";
  }
  return "?";
}

constexpr std::string_view Name(ParityFrequency frequency) {
  switch (frequency) {
    case ParityFrequency::kFloat32Pow:
      return "FLOAT32_POW";
    case ParityFrequency::kFloat32Exp:
      return "FLOAT32_EXP";
    case ParityFrequency::kFloat32ExpStep:
      return "FLOAT32_EXP_STEP";
    case ParityFrequency::kFloat64:
      return "FLOAT64";
    case ParityFrequency::kGgml:
      return "GGML";
  }
  return "?";
}

constexpr std::string_view Name(ParityType type) {
  switch (type) {
    case ParityType::kFloat64:
      return "FLOAT64";
    case ParityType::kFloat32:
      return "FLOAT32";
    case ParityType::kFloat16:
      return "FLOAT16";
    case ParityType::kBFloat16:
      return "BFLOAT16";
    case ParityType::kModel:
      return "MODEL";
  }
  return "?";
}

// How many enumerators an enum of a spec has. They are numbered from 0.
template <typename E>
constexpr int EnumeratorCount() {
  int count = 0;
  while (Name(static_cast<E>(count)) != "?") ++count;
  return count;
}

}  // namespace phasor

#endif  // PHASOR_KERNELS_SPEC_NAMES_H_
