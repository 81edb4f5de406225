// SPDX-License-Identifier: Apache-2.0
// Converts enums between the wire and values.
//
// ToWire is an exhaustive switch over our enum and the only place that defines the mapping. It
// returns 0 for a number that is not an enumerator. The reverse direction searches our enumerators,
// which count from 0, for the one whose ToWire is the wire value, so an unknown number is always
// detected. Threads: pure functions.
#ifndef PHASOR_PROTO_ENUMS_H_
#define PHASOR_PROTO_ENUMS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "kernels/backend/batch.h"
#include "kernels/base/dtype.h"
#include "kernels/ops/key_form.h"
#include "kernels/plan/bias_rule.h"
#include "kernels/request/request.h"
#include "kernels/spec/spec.h"
#include "phasor/v1/move_keys.pb.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/spec.pb.h"
#include "phasor/v1/tensor.pb.h"

namespace phasor {

v1::Dtype ToWire(Dtype value);
v1::SpecKind ToWire(SpecKind value);
v1::FrequencyFamily ToWire(FrequencyFamily value);
v1::FrequencyUnit ToWire(FrequencyUnit value);
v1::TrigOrder ToWire(TrigOrder value);
v1::Arrangement ToWire(Arrangement value);
v1::AxisGrouping ToWire(AxisGrouping value);
v1::AxisRule ToWire(AxisRule value);
v1::Pairing ToWire(Pairing value);
v1::OddDim ToWire(OddDim value);
v1::ParityFrequency ToWire(ParityFrequency value);
v1::ParityType ToWire(ParityType value);
v1::Precision ToWire(Precision value);
v1::Direction ToWire(Direction value);
v1::RopeLayout ToWire(RopeLayout value);
v1::OutOfRange ToWire(OutOfRange value);
v1::BiasFamily ToWire(BiasFamily value);
v1::EncodeOutput ToWire(EncodeOutput value);
v1::KeyCode ToWire(KeyCode value);
v1::MoveMode ToWire(MoveMode value);

// INVALID_ARGUMENT "<path>: unknown value 99, must be one of ...".
absl::Status UnknownEnumError(int value, const google::protobuf::EnumDescriptor* accepted,
                              const std::string& path);

// The enumerator whose ToWire is `wire`; nullopt if there is none.
template <typename E>
std::optional<E> FindEnumerator(int wire) {
  for (uint8_t i = 0; ToWire(static_cast<E>(i)) != 0; ++i) {
    if (ToWire(static_cast<E>(i)) == wire) return static_cast<E>(i);
  }
  return std::nullopt;
}

// The enumerator of a wire value; nullopt for 0, unspecified. INVALID_ARGUMENT: unknown value.
// Errors name `path` and `field`, such as "item" and ".layout".
template <typename E, typename W>
absl::StatusOr<std::optional<E>> OptionalEnumFromWire(W wire, const std::string& path,
                                                      const char* field = "") {
  if (static_cast<int>(wire) == 0) return std::optional<E>();
  if (const auto value = FindEnumerator<E>(wire)) return value;
  return UnknownEnumError(wire, google::protobuf::GetEnumDescriptor<W>(), path + field);
}

// The enumerator of a required wire value. INVALID_ARGUMENT: unknown or unspecified.
template <typename E, typename W>
absl::StatusOr<E> EnumFromWire(W wire, const std::string& path, const char* field = "") {
  auto value = OptionalEnumFromWire<E>(wire, path, field);
  if (!value.ok()) return value.status();
  if (!value->has_value()) {
    return UnknownEnumError(wire, google::protobuf::GetEnumDescriptor<W>(), path + field);
  }
  return **value;
}

}  // namespace phasor

#endif  // PHASOR_PROTO_ENUMS_H_
