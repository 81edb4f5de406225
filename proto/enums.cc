// SPDX-License-Identifier: Apache-2.0
// The table of every wire enum and its value enum.
#include "proto/enums.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "kernels/base/invalid.h"

namespace phasor {

v1::Dtype ToWire(Dtype value) {
  switch (value) {
    case Dtype::kFloat64:
      return v1::DTYPE_FLOAT64;
    case Dtype::kFloat32:
      return v1::DTYPE_FLOAT32;
    case Dtype::kFloat16:
      return v1::DTYPE_FLOAT16;
    case Dtype::kBFloat16:
      return v1::DTYPE_BFLOAT16;
    case Dtype::kFloat8E4M3:
      return v1::DTYPE_FLOAT8_E4M3;
    case Dtype::kFloat8E5M2:
      return v1::DTYPE_FLOAT8_E5M2;
    case Dtype::kInt32:
      return v1::DTYPE_INT32;
    case Dtype::kInt64:
      return v1::DTYPE_INT64;
  }
  return v1::DTYPE_UNSPECIFIED;
}

v1::SpecKind ToWire(SpecKind value) {
  switch (value) {
    case SpecKind::kEncoding:
      return v1::SPEC_KIND_ENCODING;
    case SpecKind::kRotary:
      return v1::SPEC_KIND_ROTARY;
  }
  return v1::SPEC_KIND_UNSPECIFIED;
}

v1::FrequencyFamily ToWire(FrequencyFamily value) {
  switch (value) {
    case FrequencyFamily::kGeometric:
      return v1::FREQUENCY_FAMILY_GEOMETRIC;
    case FrequencyFamily::kPerElement:
      return v1::FREQUENCY_FAMILY_PER_ELEMENT;
    case FrequencyFamily::kPeriods:
      return v1::FREQUENCY_FAMILY_PERIODS;
    case FrequencyFamily::kPeriodsExclusive:
      return v1::FREQUENCY_FAMILY_PERIODS_EXCLUSIVE;
    case FrequencyFamily::kExplicit:
      return v1::FREQUENCY_FAMILY_EXPLICIT;
    case FrequencyFamily::kLinear:
      return v1::FREQUENCY_FAMILY_LINEAR;
    case FrequencyFamily::kLogRange:
      return v1::FREQUENCY_FAMILY_LOG_RANGE;
  }
  return v1::FREQUENCY_FAMILY_UNSPECIFIED;
}

v1::FrequencyUnit ToWire(FrequencyUnit value) {
  switch (value) {
    case FrequencyUnit::kRadians:
      return v1::FREQUENCY_UNIT_RADIANS;
    case FrequencyUnit::kTurns:
      return v1::FREQUENCY_UNIT_TURNS;
  }
  return v1::FREQUENCY_UNIT_UNSPECIFIED;
}

v1::TrigOrder ToWire(TrigOrder value) {
  switch (value) {
    case TrigOrder::kSinCos:
      return v1::TRIG_ORDER_SIN_COS;
    case TrigOrder::kCosSin:
      return v1::TRIG_ORDER_COS_SIN;
    case TrigOrder::kCosOnly:
      return v1::TRIG_ORDER_COS_ONLY;
  }
  return v1::TRIG_ORDER_UNSPECIFIED;
}

v1::Arrangement ToWire(Arrangement value) {
  switch (value) {
    case Arrangement::kInterleaved:
      return v1::ARRANGEMENT_INTERLEAVED;
    case Arrangement::kConcatenated:
      return v1::ARRANGEMENT_CONCATENATED;
  }
  return v1::ARRANGEMENT_UNSPECIFIED;
}

v1::AxisGrouping ToWire(AxisGrouping value) {
  switch (value) {
    case AxisGrouping::kAxisMajor:
      return v1::AXIS_GROUPING_AXIS_MAJOR;
    case AxisGrouping::kComponentMajor:
      return v1::AXIS_GROUPING_COMPONENT_MAJOR;
    case AxisGrouping::kSum:
      return v1::AXIS_GROUPING_SUM;
  }
  return v1::AXIS_GROUPING_UNSPECIFIED;
}

v1::AxisRule ToWire(AxisRule value) {
  switch (value) {
    case AxisRule::kSingle:
      return v1::AXIS_RULE_SINGLE;
    case AxisRule::kAxial:
      return v1::AXIS_RULE_AXIAL;
    case AxisRule::kMropeChunked:
      return v1::AXIS_RULE_MROPE_CHUNKED;
    case AxisRule::kMropeInterleaved:
      return v1::AXIS_RULE_MROPE_INTERLEAVED;
    case AxisRule::kList:
      return v1::AXIS_RULE_LIST;
    case AxisRule::kMropeAlternating:
      return v1::AXIS_RULE_MROPE_ALTERNATING;
    case AxisRule::kFrequencyMajor:
      return v1::AXIS_RULE_FREQUENCY_MAJOR;
    case AxisRule::kDense:
      return v1::AXIS_RULE_DENSE;
  }
  return v1::AXIS_RULE_UNSPECIFIED;
}

v1::Pairing ToWire(Pairing value) {
  switch (value) {
    case Pairing::kHalfSplit:
      return v1::PAIRING_HALF_SPLIT;
    case Pairing::kInterleaved:
      return v1::PAIRING_INTERLEAVED;
    case Pairing::kBlockHalfSplit:
      return v1::PAIRING_BLOCK_HALF_SPLIT;
  }
  return v1::PAIRING_UNSPECIFIED;
}

v1::OddDim ToWire(OddDim value) {
  switch (value) {
    case OddDim::kPad:
      return v1::ODD_DIM_PAD;
    case OddDim::kSplit:
      return v1::ODD_DIM_SPLIT;
  }
  return v1::ODD_DIM_UNSPECIFIED;
}

v1::ParityFrequency ToWire(ParityFrequency value) {
  switch (value) {
    case ParityFrequency::kFloat32Pow:
      return v1::PARITY_FREQUENCY_FLOAT32_POW;
    case ParityFrequency::kFloat32Exp:
      return v1::PARITY_FREQUENCY_FLOAT32_EXP;
    case ParityFrequency::kFloat32ExpStep:
      return v1::PARITY_FREQUENCY_FLOAT32_EXP_STEP;
    case ParityFrequency::kFloat64:
      return v1::PARITY_FREQUENCY_FLOAT64;
    case ParityFrequency::kGgml:
      return v1::PARITY_FREQUENCY_GGML;
  }
  return v1::PARITY_FREQUENCY_UNSPECIFIED;
}

v1::ParityType ToWire(ParityType value) {
  switch (value) {
    case ParityType::kFloat64:
      return v1::PARITY_TYPE_FLOAT64;
    case ParityType::kFloat32:
      return v1::PARITY_TYPE_FLOAT32;
    case ParityType::kFloat16:
      return v1::PARITY_TYPE_FLOAT16;
    case ParityType::kBFloat16:
      return v1::PARITY_TYPE_BFLOAT16;
    case ParityType::kModel:
      return v1::PARITY_TYPE_MODEL;
  }
  return v1::PARITY_TYPE_UNSPECIFIED;
}

v1::Precision ToWire(Precision value) {
  switch (value) {
    case Precision::kExact:
      return v1::PRECISION_EXACT;
    case Precision::kParity:
      return v1::PRECISION_PARITY;
  }
  return v1::PRECISION_UNSPECIFIED;
}

v1::Direction ToWire(Direction value) {
  switch (value) {
    case Direction::kForward:
      return v1::DIRECTION_FORWARD;
    case Direction::kInverse:
      return v1::DIRECTION_INVERSE;
    case Direction::kDelta:
      return v1::DIRECTION_DELTA;
  }
  return v1::DIRECTION_UNSPECIFIED;
}

v1::RopeLayout ToWire(RopeLayout value) {
  switch (value) {
    case RopeLayout::kTokensHeads:
      return v1::ROPE_LAYOUT_TOKENS_HEADS;
    case RopeLayout::kHeadsTokens:
      return v1::ROPE_LAYOUT_HEADS_TOKENS;
  }
  return v1::ROPE_LAYOUT_UNSPECIFIED;
}

v1::OutOfRange ToWire(OutOfRange value) {
  switch (value) {
    case OutOfRange::kStrict:
      return v1::OUT_OF_RANGE_STRICT;
    case OutOfRange::kClip:
      return v1::OUT_OF_RANGE_CLIP;
  }
  return v1::OUT_OF_RANGE_UNSPECIFIED;
}

v1::BiasFamily ToWire(BiasFamily value) {
  switch (value) {
    case BiasFamily::kT5:
      return v1::BIAS_FAMILY_T5;
    case BiasFamily::kClipped:
      return v1::BIAS_FAMILY_CLIPPED;
    case BiasFamily::kSwin:
      return v1::BIAS_FAMILY_SWIN;
    case BiasFamily::kAlibi:
      return v1::BIAS_FAMILY_ALIBI;
    case BiasFamily::kDeberta:
      return v1::BIAS_FAMILY_DEBERTA;
    case BiasFamily::kAlibiKey:
      return v1::BIAS_FAMILY_ALIBI_KEY;
  }
  return v1::BIAS_FAMILY_UNSPECIFIED;
}

v1::EncodeOutput ToWire(EncodeOutput value) {
  switch (value) {
    case EncodeOutput::kEmbedding:
      return v1::ENCODE_OUTPUT_EMBEDDING;
    case EncodeOutput::kCosSin:
      return v1::ENCODE_OUTPUT_COS_SIN;
    case EncodeOutput::kCosSinDuplicated:
      return v1::ENCODE_OUTPUT_COS_SIN_DUPLICATED;
    case EncodeOutput::kCosSinRepeated:
      return v1::ENCODE_OUTPUT_COS_SIN_REPEATED;
    case EncodeOutput::kSinCos:
      return v1::ENCODE_OUTPUT_SIN_COS;
    case EncodeOutput::kSinCosDuplicated:
      return v1::ENCODE_OUTPUT_SIN_COS_DUPLICATED;
    case EncodeOutput::kSinCosRepeated:
      return v1::ENCODE_OUTPUT_SIN_COS_REPEATED;
    case EncodeOutput::kComplex:
      return v1::ENCODE_OUTPUT_COMPLEX;
    case EncodeOutput::kMatrix2x2:
      return v1::ENCODE_OUTPUT_MATRIX_2X2;
    case EncodeOutput::kCos:
      return v1::ENCODE_OUTPUT_COS;
    case EncodeOutput::kCosDuplicated:
      return v1::ENCODE_OUTPUT_COS_DUPLICATED;
    case EncodeOutput::kCosRepeated:
      return v1::ENCODE_OUTPUT_COS_REPEATED;
    case EncodeOutput::kSin:
      return v1::ENCODE_OUTPUT_SIN;
    case EncodeOutput::kSinDuplicated:
      return v1::ENCODE_OUTPUT_SIN_DUPLICATED;
    case EncodeOutput::kSinRepeated:
      return v1::ENCODE_OUTPUT_SIN_REPEATED;
  }
  return v1::ENCODE_OUTPUT_UNSPECIFIED;
}

v1::KeyCode ToWire(KeyCode value) {
  switch (value) {
    case KeyCode::kFloat32:
      return v1::KEY_CODE_FLOAT32;
    case KeyCode::kFloat16:
      return v1::KEY_CODE_FLOAT16;
    case KeyCode::kBFloat16:
      return v1::KEY_CODE_BFLOAT16;
    case KeyCode::kFloat8E4M3:
      return v1::KEY_CODE_FLOAT8_E4M3;
    case KeyCode::kFloat8E5M2:
      return v1::KEY_CODE_FLOAT8_E5M2;
    case KeyCode::kInt8:
      return v1::KEY_CODE_INT8;
    case KeyCode::kQ8_0:
      return v1::KEY_CODE_Q8_0;
    case KeyCode::kQ4_0:
      return v1::KEY_CODE_Q4_0;
    case KeyCode::kQ4_1:
      return v1::KEY_CODE_Q4_1;
    case KeyCode::kQ5_0:
      return v1::KEY_CODE_Q5_0;
    case KeyCode::kQ5_1:
      return v1::KEY_CODE_Q5_1;
  }
  return v1::KEY_CODE_UNSPECIFIED;
}

v1::MoveMode ToWire(MoveMode value) {
  switch (value) {
    case MoveMode::kCopyOnWrite:
      return v1::MOVE_MODE_COPY_ON_WRITE;
    case MoveMode::kMove:
      return v1::MOVE_MODE_MOVE;
    case MoveMode::kCompare:
      return v1::MOVE_MODE_COMPARE;
  }
  return v1::MOVE_MODE_UNSPECIFIED;
}

absl::Status UnknownEnumError(int value, const google::protobuf::EnumDescriptor* accepted,
                              const std::string& path) {
  std::string names;
  for (int i = 0; i < accepted->value_count(); ++i) {
    if (accepted->value(i)->number() == 0) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", accepted->value(i)->name());
  }
  if (value == 0) return InvalidAt(path, "not set; must be one of ", names);
  return InvalidAt(path, "unknown value ", value, "; must be one of ", names);
}

}  // namespace phasor
