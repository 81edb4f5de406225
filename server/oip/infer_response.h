// SPDX-License-Identifier: Apache-2.0
// Makes ModelInferResponse and ModelStreamInferResponse: a generated header, followed by the output
// bytes by reference. Threads: pure functions.
#ifndef PHASOR_SERVER_OIP_INFER_RESPONSE_H_
#define PHASOR_SERVER_OIP_INFER_RESPONSE_H_

#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "absl/status/status.h"
#include "server/engine/call.h"
#include "server/oip/prepared_infer.h"

namespace phasor::oip {

// The response has one raw entry per output, in order; the entry of an output in shared memory is
// empty, because clients count entries. `stream`: makes a message of a stream, marked as the only
// one of its request.
grpc::ByteBuffer MakeInferResponse(const PreparedInfer& prepared, const engine::Result& result,
                                   bool stream);

// The message of a stream about a request that failed.
grpc::ByteBuffer MakeStreamError(const absl::Status& status, const std::string& id);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INFER_RESPONSE_H_
