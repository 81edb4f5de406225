// SPDX-License-Identifier: Apache-2.0
// ModelStreamInfer: requests of one stream, answered one after another.
#ifndef PHASOR_SERVER_OIP_INFER_STREAM_H_
#define PHASOR_SERVER_OIP_INFER_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/oip/infer_call.h"

namespace phasor::oip {

using InferStreamReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// All open streams of a server. A stream takes its next request when it has sent the last answer. A
// request that fails is answered with its message and the stream goes on, unless the caller asked
// for gRPC's status with `triton_grpc_error: true` in its metadata. Threads: any.
class InferStreams {
 public:
  explicit InferStreams(const InferContext& context) : context_(context) {}

  // A new stream's reactor, which owns itself.
  InferStreamReactor* Start(grpc::CallbackServerContext* context);

  // Ends all streams, also those to come, with UNAVAILABLE; requests under way are answered first.
  void End();

 private:
  class Stream;

  const InferContext context_;
  absl::Mutex mu_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::set<Stream*> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INFER_STREAM_H_
