// SPDX-License-Identifier: Apache-2.0
// The gRPC service: bytes in, engine calls, bytes out.
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
#include "server/api/stream.h"
#include "server/api/tensor_call.h"
#include "server/engine/engine.h"

namespace phasor::rpc {

// What the server tells its services. Zero limits refuse everything: set them all.
struct ServiceOptions {
  std::string version;  // of the server, e.g. "0.1.0"
  int64_t max_message_bytes = 0;
  int64_t max_header_bytes = 0;
  int64_t max_inflight_bytes = 0;  // reported only; the engine enforces it
  int64_t inline_bytes = 0;        // reported only; the engine enforces it
  int64_t max_batch_items = 0;
  const TableSource* tables = nullptr;  // must outlive the service; nullptr: none are kept
  std::string lease_socket;             // reported only
  absl::Duration stream_idle_timeout = absl::ZeroDuration();  // 0: never
  const EncoderCatalogue* encoders = nullptr;  // must outlive the service; nullptr: there are none
  memory::Stores memory = {};                  // the same
};

// Unary methods take the received bytes as they are, so that element bytes are never copied into a
// message and what does not parse is INVALID_ARGUMENT. So do streaming ones.
using PositionEmbeddingServiceBase = v1::PositionEmbeddingService::WithRawCallbackMethod_Encode<
    v1::PositionEmbeddingService::WithRawCallbackMethod_ApplyRoPE<
        v1::PositionEmbeddingService::WithRawCallbackMethod_BatchEncode<
            v1::PositionEmbeddingService::WithRawCallbackMethod_BatchApplyRoPE<
                v1::PositionEmbeddingService::WithRawCallbackMethod_AttentionBias<
                    v1::PositionEmbeddingService::WithRawCallbackMethod_ResolveSpec<
                        v1::PositionEmbeddingService::WithRawCallbackMethod_ListPresets<
                            v1::PositionEmbeddingService::WithRawCallbackMethod_GetServerInfo<
                                v1::PositionEmbeddingService::WithRawCallbackMethod_StreamEncode<
                                    v1::PositionEmbeddingService::
                                        WithRawCallbackMethod_StreamApplyRoPE<
                                            v1::PositionEmbeddingService::Service>>>>>>>>>>;

// Threads: gRPC calls the methods from its own threads, many at once. No method blocks; calls up to
// the engine's inline size are computed inside them.
class PositionEmbeddingServiceImpl final : public PositionEmbeddingServiceBase {
 public:
  // `engine` must outlive the service.
  PositionEmbeddingServiceImpl(engine::Engine* engine, ServiceOptions options);

  // Addresses that GetServerInfo reports; they are known only after the server has started.
  void SetListeners(std::vector<std::string> listeners);

  // What calls that begin from now on may ask for, and GetServerInfo reports.
  void SetLimits(int64_t max_inflight_bytes, int64_t max_batch_items);

  // From now on streams end as soon as the items that they began are done.
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
  grpc::ServerUnaryReactor* ResolveSpec(grpc::CallbackServerContext* context,
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

 private:
  TensorCallLimits Limits() const;
  grpc::ServerUnaryReactor* Start(const TensorMethod& method, grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response);
  absl::StatusOr<v1::ResolveSpecResponse> Resolve(const grpc::CallbackServerContext& context,
                                                  const grpc::ByteBuffer& request);
  v1::GetServerInfoResponse Info();

  engine::Engine& engine_;
  const ServiceOptions options_;
  const std::string backend_;
  StreamSet streams_;
  // A reload changes these.
  std::atomic<int64_t> max_inflight_bytes_;
  std::atomic<int64_t> max_batch_items_;
  absl::Mutex mu_;
  std::vector<std::string> listeners_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_API_SERVICE_H_
