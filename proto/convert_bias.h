// SPDX-License-Identifier: Apache-2.0
// Wire messages of attention biases and tables, and the values of kernels/request/bias.h, both
// ways. As proto/convert.h. Threads: pure functions.
#ifndef PHASOR_PROTO_CONVERT_BIAS_H_
#define PHASOR_PROTO_CONVERT_BIAS_H_

#include <string>

#include "absl/status/statusor.h"
#include "kernels/request/bias.h"
#include "kernels/tensor/table.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/table_service.pb.h"

namespace phasor {

absl::StatusOr<BiasRequest> BiasRequestFromWire(const v1::AttentionBiasItem& wire,
                                                const std::string& path);
v1::AttentionBiasItem ToWire(const BiasRequest& request);
v1::BiasPreset ToWire(const BiasPreset& preset);

// How many entries of `raw` belong to the item.
int CountInlineTensors(const v1::AttentionBiasItem& item);

// Name, type, shape and checksum.
v1::Table ToWire(const Table& table);

}  // namespace phasor

#endif  // PHASOR_PROTO_CONVERT_BIAS_H_
