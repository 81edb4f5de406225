// SPDX-License-Identifier: Apache-2.0
// Ends calls with a status.
#ifndef PHASOR_SERVER_GRPC_FINISH_CALL_H_
#define PHASOR_SERVER_GRPC_FINISH_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>

#include "absl/status/status.h"

namespace phasor::rpc {

// With UNAVAILABLE, adds trailing metadata that says when to retry. Before the call is finished.
void AddPushback(grpc::CallbackServerContext* context, const absl::Status& status);

// Ends a call with `status`, and with an answer of `sent_bytes` bytes if that is OK. With
// UNAVAILABLE, adds the pushback.
void FinishCall(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                const absl::Status& status, size_t sent_bytes = 0);

// Ends a stream with `status`, after its answers (CallCounter::NoteAnswer). With UNAVAILABLE, adds
// the pushback.
void FinishStream(grpc::CallbackServerContext* context,
                  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* reactor,
                  const absl::Status& status);

// If Refusal (server/grpc/access.h) refuses the call, returns a reactor that has ended it;
// otherwise nullptr.
grpc::ServerUnaryReactor* RefusedReactor(grpc::CallbackServerContext* context);

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_FINISH_CALL_H_
