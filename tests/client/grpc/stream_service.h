// SPDX-License-Identifier: Apache-2.0
// A server whose streams do what a test tells them.
#ifndef PHASOR_TESTS_CLIENT_GRPC_STREAM_SERVICE_H_
#define PHASOR_TESTS_CLIENT_GRPC_STREAM_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/synchronization/notification.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"

namespace phasor::client_internal {

// Answers ApplyRoPE's streams with what it was sent. Threads: the handlers run on gRPC's.
class StreamService final : public v1::PositionEmbeddingService::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::StreamApplyRoPEResponse, v1::StreamApplyRoPERequest>;

  StreamService() {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~StreamService() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::shared_ptr<grpc::Channel> channel() { return server_->InProcessChannel({}); }

  // Changes an answer; not OK: the stream ends with it instead.
  std::function<grpc::Status(v1::StreamApplyRoPEResponse&)> spoil;
  // The id of an item that is answered before anything is read. Then nothing is, until `read_on`.
  std::optional<int64_t> guess;
  absl::Notification read_on;
  int received = 0;
  std::string traceparent;  // of the last call

  grpc::Status StreamApplyRoPE(grpc::ServerContext* context, Stream* stream) override {
    for (const auto& [key, value] : context->client_metadata()) {
      if (key == "traceparent") traceparent = std::string(value.data(), value.size());
    }
    if (guess.has_value()) {
      v1::StreamApplyRoPEResponse answer;
      answer.set_id(*guess);
      answer.mutable_result()->mutable_status()->set_code(5);
      stream->Write(answer);
      read_on.WaitForNotification();
    }
    std::map<int64_t, v1::ApplyRoPEItem> open;
    v1::StreamApplyRoPERequest request;
    while (stream->Read(&request)) {
      ++received;
      if (request.has_item()) open[request.id()] = request.item();
      v1::StreamApplyRoPEResponse response = Echo(request, open[request.id()]);
      if (spoil) {
        const grpc::Status status = spoil(response);
        if (!status.ok()) return status;
      }
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

 private:
  static v1::StreamApplyRoPEResponse Echo(const v1::StreamApplyRoPERequest& request,
                                          const v1::ApplyRoPEItem& item) {
    v1::StreamApplyRoPEResponse response;
    response.set_id(request.id());
    response.mutable_result()->mutable_status();
    for (const v1::RopeTensor& tensor : item.tensors()) {
      v1::TensorSpec* out = response.mutable_result()->add_tensors();
      *out = tensor.tensor();
      const int token = item.layout() == v1::ROPE_LAYOUT_TOKENS_HEADS ? 0 : 1;
      if (request.has_chunk()) out->set_shape(token, request.chunk().tokens());
    }
    if (request.has_chunk()) *response.mutable_chunk() = request.chunk();
    if (!request.chunked()) *response.mutable_raw() = request.raw();
    return response;
  }

  std::unique_ptr<grpc::Server> server_;
};

}  // namespace phasor::client_internal

#endif  // PHASOR_TESTS_CLIENT_GRPC_STREAM_SERVICE_H_
