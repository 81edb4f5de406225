// SPDX-License-Identifier: Apache-2.0
// ModelStreamInfer: the requests of a stream, answered one after another.
#ifndef PHASOR_SERVER_OIP_INFER_STREAM_H_
#define PHASOR_SERVER_OIP_INFER_STREAM_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/oip/infer_call.h"

namespace phasor::oip {

using InferStreamReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

// The open streams of a server. A stream takes its next request after it has sent the last answer.
// If a request fails, its answer is the error message and the stream goes on. If the metadata has
// `triton_grpc_error: true`, the stream ends with the gRPC status instead. A stream that sends
// nothing for the idle timeout ends with DEADLINE_EXCEEDED. Threads: any.
class InferStreams {
 public:
  // `idle_timeout` 0: no limit.
  InferStreams(const InferContext& context, absl::Duration idle_timeout)
      : context_(context), idle_timeout_(idle_timeout) {}

  // Returns the reactor of a new stream. It owns itself.
  InferStreamReactor* Start(grpc::CallbackServerContext* context);

  // Ends all streams, and those that begin later, with UNAVAILABLE. Answers requests under way
  // first.
  void End();

 private:
  class Stream;

  const InferContext context_;
  const absl::Duration idle_timeout_;
  // Shared with the timers of streams, which may still run when the streams are gone.
  const std::shared_ptr<absl::Mutex> mu_ = std::make_shared<absl::Mutex>();
  bool ending_ ABSL_GUARDED_BY(*mu_) = false;
  std::set<Stream*> streams_ ABSL_GUARDED_BY(*mu_);
};

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INFER_STREAM_H_
