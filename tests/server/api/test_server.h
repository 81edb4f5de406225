// SPDX-License-Identifier: Apache-2.0
// The services in a real gRPC server of this process, with a fake backend, and a client that can
// send any bytes.
#ifndef PHASOR_TESTS_SERVER_API_TEST_SERVER_H_
#define PHASOR_TESTS_SERVER_API_TEST_SERVER_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "server/api/service.h"
#include "server/api/table_service.h"
#include "server/engine/engine.h"
#include "server/tables/table_store.h"
#include "tests/support/fake_backend.h"

namespace phasor::rpc {

// A call in flight.
struct PendingCall {
  grpc::ClientContext context;
  grpc::ByteBuffer response;
  grpc::Status status;
  absl::Notification done;
};

class TestServer {
 public:
  static engine::EngineOptions SmallEngine() {
    engine::EngineOptions options;
    options.workers = 1;
    options.inline_bytes = 64 << 10;
    return options;
  }

  explicit TestServer(const engine::EngineOptions& engine_options = SmallEngine(),
                      const tables::TableStoreOptions& table_options = {},
                      absl::Duration stream_idle_timeout = absl::ZeroDuration(),
                      BatchPolicy policy = {})
      : backend_(policy),
        store_(tables::TableStore::Open(table_options).value()),
        engine_(engine_options, &backend_, Clock::Real()),
        service_(&engine_, {.version = "1.2.3",
                            .max_message_bytes = 64 << 20,
                            .max_header_bytes = 1 << 16,
                            .max_inflight_bytes = engine_options.max_inflight_bytes,
                            .inline_bytes = engine_options.inline_bytes,
                            .max_batch_items = 8,
                            .tables = store_.get(),
                            .stream_idle_timeout = stream_idle_timeout}),
        tables_(store_.get(), stream_idle_timeout) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(&service_);
    builder.RegisterService(&tables_);
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(64 << 20);
    channel_ = server_->InProcessChannel(arguments);
    generic_ = std::make_unique<grpc::GenericStub>(channel_);
  }

  ~TestServer() {
    backend_.Release();
    server_->Shutdown();
    server_->Wait();
  }

  FakeBackend& backend() { return backend_; }
  engine::Engine& engine() { return engine_; }
  PositionEmbeddingServiceImpl& service() { return service_; }
  tables::TableStore& store() { return *store_; }
  const std::shared_ptr<grpc::Channel>& channel() { return channel_; }

  // Starts `method` of the position-embedding service with these bytes.
  void Start(const std::string& method, const std::string& bytes, PendingCall* call) {
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    generic_->UnaryCall(&call->context, "/phasor.v1.PositionEmbeddingService/" + method, {},
                        &request, &call->response, [call](grpc::Status status) {
                          call->status = std::move(status);
                          call->done.Notify();
                        });
  }

  // The same, and waits.
  grpc::Status Call(const std::string& method, const std::string& bytes) {
    PendingCall call;
    Start(method, bytes, &call);
    call.done.WaitForNotification();
    return call.status;
  }

 private:
  FakeBackend backend_;
  std::unique_ptr<tables::TableStore> store_;
  engine::Engine engine_;
  PositionEmbeddingServiceImpl service_;
  TableServiceImpl tables_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> generic_;
};

}  // namespace phasor::rpc

#endif  // PHASOR_TESTS_SERVER_API_TEST_SERVER_H_
