// SPDX-License-Identifier: Apache-2.0
// Wire enums and value enums, both ways.
//
// ToWire is an exhaustive switch over our enum and the single source of the mapping; the way back
// searches our enumerators for the one whose ToWire is the wire value, so that an unknown number
// cannot slip through. Threads: pure functions.
#ifndef PHASOR_PROTO_ENUMS_H_
#define PHASOR_PROTO_ENUMS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "kernels/dtype.h"
#include "kernels/request.h"
#include "kernels/spec.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/spec.pb.h"
#include "phasor/v1/tensor.pb.h"

namespace phasor {

v1::Dtype ToWire(Dtype value);
v1::SpecKind ToWire(SpecKind value);
v1::FrequencyFamily ToWire(FrequencyFamily value);
v1::TrigOrder ToWire(TrigOrder value);
v1::Arrangement ToWire(Arrangement value);
v1::AxisGrouping ToWire(AxisGrouping value);
v1::AxisRule ToWire(AxisRule value);
v1::Pairing ToWire(Pairing value);
v1::Precision ToWire(Precision value);
v1::Direction ToWire(Direction value);
v1::RopeLayout ToWire(RopeLayout value);

// All enumerators of E.
template <typename E>
absl::Span<const E> Enumerators();
template <>
absl::Span<const Dtype> Enumerators();
template <>
absl::Span<const SpecKind> Enumerators();
template <>
absl::Span<const FrequencyFamily> Enumerators();
template <>
absl::Span<const TrigOrder> Enumerators();
template <>
absl::Span<const Arrangement> Enumerators();
template <>
absl::Span<const AxisGrouping> Enumerators();
template <>
absl::Span<const AxisRule> Enumerators();
template <>
absl::Span<const Pairing> Enumerators();
template <>
absl::Span<const Precision> Enumerators();
template <>
absl::Span<const Direction> Enumerators();
template <>
absl::Span<const RopeLayout> Enumerators();

// INVALID_ARGUMENT "<path>: unknown value 99, must be one of ...".
absl::Status UnknownEnumError(int value, const google::protobuf::EnumDescriptor* accepted,
                              const std::string& path);

// The enumerator of a wire value; nullopt for the unspecified 0. INVALID_ARGUMENT: unknown.
template <typename E, typename W>
absl::StatusOr<std::optional<E>> OptionalEnumFromWire(W wire, const std::string& path) {
  if (static_cast<int>(wire) == 0) return std::optional<E>();
  for (E value : Enumerators<E>()) {
    if (ToWire(value) == wire) return std::optional<E>(value);
  }
  return UnknownEnumError(wire, google::protobuf::GetEnumDescriptor<W>(), path);
}

// The enumerator of a wire value that must be given. INVALID_ARGUMENT: unknown or unspecified.
template <typename E, typename W>
absl::StatusOr<E> EnumFromWire(W wire, const std::string& path) {
  auto value = OptionalEnumFromWire<E>(wire, path);
  if (!value.ok()) return value.status();
  if (!value->has_value()) {
    return UnknownEnumError(wire, google::protobuf::GetEnumDescriptor<W>(), path);
  }
  return **value;
}

}  // namespace phasor

#endif  // PHASOR_PROTO_ENUMS_H_
