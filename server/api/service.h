// SPDX-License-Identifier: Apache-2.0
// PositionEmbeddingService: received bytes in, engine calls, response bytes out.
#ifndef PHASOR_SERVER_API_SERVICE_H_
#define PHASOR_SERVER_API_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "server/api/request_memo.h"
#include "server/api/stream.h"
#include "server/api/tensor_call.h"
#include "server/base/task_thread.h"
#include "server/engine/engine.h"

namespace phasor::rpc {

// Settings of the service. A limit of 0 refuses everything, so set all of them.
struct ServiceOptions {
  std::string version;  // the server's version, e.g. "0.1.0"
  int64_t max_message_bytes = 0;
  int64_t max_header_bytes = 0;
  int64_t max_inflight_bytes = 0;  // only reported; the engine enforces it
  int64_t inline_bytes = 0;        // only reported; the engine enforces it
  int64_t max_batch_items = 0;
  const tables::TableStore* tables = nullptr;  // must outlive the service; nullptr: none are kept
  std::string lease_socket;                    // only reported
  absl::Duration stream_idle_timeout = absl::ZeroDuration();  // 0: no limit
  // Must outlive the service; nullptr: none are configured.
  const EncoderCatalogue* encoders = nullptr;
  memory::Stores memory = {};  // must outlive the service
};

// Methods with tensors, streams too, take the received bytes without parsing them. So element bytes
// are never copied into a message, and bytes that do not parse are INVALID_ARGUMENT.
using Rpcs = v1::PositionEmbeddingService;
using RawBatches =
    Rpcs::WithRawCallbackMethod_BatchEncode<Rpcs::WithRawCallbackMethod_BatchApplyRoPE<
        Rpcs::WithRawCallbackMethod_BatchMoveKeys<Rpcs::Service>>>;
using RawStreams =
    Rpcs::WithRawCallbackMethod_StreamEncode<Rpcs::WithRawCallbackMethod_StreamApplyRoPE<
        Rpcs::WithRawCallbackMethod_StreamMoveKeys<RawBatches>>>;
using RawCalls = Rpcs::WithRawCallbackMethod_Encode<Rpcs::WithRawCallbackMethod_ApplyRoPE<
    Rpcs::WithRawCallbackMethod_AttentionBias<Rpcs::WithRawCallbackMethod_MoveKeys<RawStreams>>>>;
using PositionEmbeddingServiceBase = Rpcs::WithRawCallbackMethod_ResolveSpec<
    Rpcs::WithRawCallbackMethod_ResolveModel<Rpcs::WithRawCallbackMethod_ListPresets<
        Rpcs::WithRawCallbackMethod_GetServerInfo<RawCalls>>>>;

// Implements the gRPC service of phasor.v1. Threads: gRPC calls the methods from its own threads,
// many at once. No method blocks; a call up to the engine's inline size is computed inside its
// method.
class PositionEmbeddingServiceImpl final : public PositionEmbeddingServiceBase {
 public:
  // `engine` must outlive the service.
  PositionEmbeddingServiceImpl(engine::Engine* engine, ServiceOptions options);

  // Sets the addresses that GetServerInfo reports, which are known only after the server has
  // started.
  void SetListeners(std::vector<std::string> listeners);

  // Sets what calls that begin from now on may ask for, and what GetServerInfo reports.
  void SetLimits(int64_t max_inflight_bytes, int64_t max_batch_items);

  // From now on, every stream ends as soon as the items that it began are done.
  void DrainStreams() { streams_.Drain(); }
  int64_t streams() { return streams_.size(); }

  grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ApplyRoPE(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* BatchEncode(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* BatchApplyRoPE(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* AttentionBias(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* MoveKeys(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* BatchMoveKeys(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ResolveSpec(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ResolveModel(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListPresets(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamEncode(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamApplyRoPE(
      grpc::CallbackServerContext* context) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamMoveKeys(
      grpc::CallbackServerContext* context) override;

 private:
  TensorCallLimits Limits();
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Start(
      const StreamMethod& method, grpc::CallbackServerContext* context);
  grpc::ServerUnaryReactor* Start(const TensorMethod& method, grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response);
  absl::StatusOr<v1::ResolveSpecResponse> DescribeSpec(const ResolvedSpec& spec);
  // With the comparison, if the request wants one. `resolved`: what `spec` stands for.
  absl::StatusOr<v1::ResolveSpecResponse> DescribeLater(const grpc::CallbackServerContext& context,
                                                        const v1::ResolveSpecRequest& request,
                                                        const Spec& spec,
                                                        const ResolvedSpec& resolved);
  v1::GetServerInfoResponse Info();

  engine::Engine& engine_;
  const ServiceOptions options_;
  const std::string backend_;
  RequestMemo memo_;
  StreamSet streams_;
  // Limits that a reload of the configuration changes.
  std::atomic<int64_t> max_inflight_bytes_;
  std::atomic<int64_t> max_batch_items_;
  absl::Mutex mu_;
  std::vector<std::string> listeners_ ABSL_GUARDED_BY(mu_);
  TaskThread long_answers_;  // wide specs and comparisons take up to a fifth of a second each
  TaskThread table_reads_;   // a large table takes a second
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_SERVICE_H_
