// SPDX-License-Identifier: Apache-2.0
// Wire messages and the value types of kernels/, both ways. The server reads requests with it, the
// client writes them. Threads: pure functions.
//
// `path` prefixes messages ("item.positions"). All *FromWire return INVALID_ARGUMENT for what is
// missing or unknown and UNIMPLEMENTED, naming the field, for what the wire can say but this
// version cannot do. Ranges and shapes are not checked here: kernels/request/request.h does.
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

// Where the tensors of a message may be: kInline, in it (others, and destinations, are
// UNIMPLEMENTED); kShared, also in regions, of the host or a device, which whoever asks for it
// finds.
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
v1::Positions ToWire(const Positions& positions);
v1::EncodeItem ToWire(const EncodeRequest& request);
v1::PagedCacheWrite ToWire(const PagedCache& cache);
v1::ApplyRoPEItem ToWire(const RopeRequest& request);

// How many entries of `raw` these take: 1 for an inline tensor, else 0.
int CountInline(const v1::TensorSpec& tensor);
int CountInline(const v1::Positions& positions);
// How many entries of `raw` belong to the item, whether or not it can be converted.
int CountInlineTensors(const v1::EncodeItem& item);
int CountInlineTensors(const v1::ApplyRoPEItem& item);

}  // namespace phasor

#endif  // PHASOR_PROTO_CONVERT_H_
