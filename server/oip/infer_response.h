// SPDX-License-Identifier: Apache-2.0
// Results as ModelInferResponse and ModelStreamInferResponse: a generated header, then the output
// bytes by reference. Threads: pure functions.
#ifndef PHASOR_SERVER_OIP_INFER_RESPONSE_H_
#define PHASOR_SERVER_OIP_INFER_RESPONSE_H_

#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "absl/status/status.h"
#include "server/engine/call.h"
#include "server/oip/prepared_infer.h"

namespace phasor::oip {

// One raw entry per output, in their order; empty for outputs in shared memory, because clients
// count entries. `stream`: as the message of a stream, marked as the only one of its request.
grpc::ByteBuffer MakeInferResponse(const PreparedInfer& prepared, const engine::Result& result,
                                   bool stream);

// What a stream says about a request that failed.
grpc::ByteBuffer MakeStreamError(const absl::Status& status, const std::string& id);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INFER_RESPONSE_H_
