// SPDX-License-Identifier: Apache-2.0
// Converts wire messages to the value types of kernels/ and back. The server reads requests with it
// and the client writes them. Threads: pure functions.
//
// `path` is the field path in error messages, such as "item.positions". All *FromWire functions
// return INVALID_ARGUMENT for a missing or unknown value, and UNIMPLEMENTED, with the field's name,
// for what the wire can express but this version cannot do. They do not check ranges and shapes;
// kernels/request/request.h does.
#ifndef PHASOR_PROTO_CONVERT_H_
#define PHASOR_PROTO_CONVERT_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/request/request.h"
#include "kernels/tensor/positions.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/tensor.pb.h"
#include "proto/convert_spec.h"

namespace phasor {

Pins PinsFromWire(const v1::Pins& wire);
v1::Pins ToWire(const Pins& pins);

// Where tensors of a message may be. kInline: only in the message; regions and destinations are
// UNIMPLEMENTED. kShared: also in regions of host or GPU memory, which the caller of the conversion
// must find.
enum class Sources : uint8_t { kInline, kShared };

absl::StatusOr<TensorDesc> TensorDescFromWire(const v1::TensorSpec& wire, const std::string& path,
                                              Sources sources = Sources::kInline);
absl::StatusOr<Positions> PositionsFromWire(const v1::Positions& wire, const std::string& path,
                                            Sources sources = Sources::kInline);
absl::StatusOr<EncodeRequest> EncodeRequestFromWire(const v1::EncodeItem& wire,
                                                    const std::string& path,
                                                    Sources sources = Sources::kInline);
absl::StatusOr<RopeRequest> RopeRequestFromWire(const v1::ApplyRoPEItem& wire,
                                                const std::string& path,
                                                Sources sources = Sources::kInline);

v1::TensorSpec ToWire(const TensorDesc& tensor);
void ToWire(const TensorDesc& tensor, v1::TensorSpec* wire);  // `wire` must be empty
v1::Positions ToWire(const Positions& positions);
v1::EncodeItem ToWire(const EncodeRequest& request);
v1::PagedCacheWrite ToWire(const PagedCache& cache);
v1::ApplyRoPEItem ToWire(const RopeRequest& request);

// Number of entries of `raw` that belong to the argument: 1 for an inline tensor, otherwise 0.
int CountInline(const v1::TensorSpec& tensor);
int CountInline(const v1::Positions& positions);
// Number of entries of `raw` that belong to the item, also if the item is invalid.
int CountInlineTensors(const v1::EncodeItem& item);
int CountInlineTensors(const v1::ApplyRoPEItem& item);

}  // namespace phasor

#endif  // PHASOR_PROTO_CONVERT_H_
