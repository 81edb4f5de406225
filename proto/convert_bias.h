// SPDX-License-Identifier: Apache-2.0
// Converts messages of attention biases and tables to the values of kernels/request/bias.h and
// back. Errors are as in proto/convert.h. Threads: pure functions.
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

// Number of entries of `raw` that belong to the item.
int CountInlineTensors(const v1::AttentionBiasItem& item);

// Name, type, shape and checksum of a table.
v1::Table ToWire(const Table& table);

}  // namespace phasor

#endif  // PHASOR_PROTO_CONVERT_BIAS_H_
