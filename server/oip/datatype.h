// SPDX-License-Identifier: Apache-2.0
// Converts between the kernels' element types and the protocol's datatype names. Pure functions.
#ifndef PHASOR_SERVER_OIP_DATATYPE_H_
#define PHASOR_SERVER_OIP_DATATYPE_H_

#include <optional>
#include <string_view>

#include "kernels/base/dtype.h"

namespace phasor::oip {

// The protocol's name of a type; empty if it has none.
constexpr std::string_view DatatypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return "FP64";
    case Dtype::kFloat32:
      return "FP32";
    case Dtype::kFloat16:
      return "FP16";
    case Dtype::kBFloat16:
      return "BF16";
    case Dtype::kInt32:
      return "INT32";
    case Dtype::kInt64:
      return "INT64";
    case Dtype::kFloat8E4M3:
    case Dtype::kFloat8E5M2:
      return "";
  }
  return "";
}

inline constexpr Dtype kDatatypes[] = {Dtype::kFloat64,  Dtype::kFloat32, Dtype::kFloat16,
                                       Dtype::kBFloat16, Dtype::kInt32,   Dtype::kInt64};
inline constexpr std::string_view kAcceptedDatatypes = "FP64, FP32, FP16, BF16, INT32 or INT64";

// The type of that name; nullopt: no model takes it.
constexpr std::optional<Dtype> DtypeOf(std::string_view datatype) {
  for (const Dtype dtype : kDatatypes) {
    if (DatatypeOf(dtype) == datatype) return dtype;
  }
  return std::nullopt;
}

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_DATATYPE_H_
