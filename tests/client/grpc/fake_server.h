// SPDX-License-Identifier: Apache-2.0
// A gRPC server that answers every method with the result of a function of the test.
#ifndef PHASOR_TESTS_CLIENT_GRPC_FAKE_SERVER_H_
#define PHASOR_TESTS_CLIENT_GRPC_FAKE_SERVER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace phasor::client_internal {

// `bytes` as a message.
inline grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

inline std::string FromBuffer(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  (void)buffer.Dump(&slices);
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// Threads: the handler runs on gRPC's threads. Owns the server; the destructor stops it.
class FakeServer : private grpc::CallbackGenericService {
 public:
  struct Request {
    std::string method;
    std::string peer;
    std::string bytes;
    std::multimap<std::string, std::string> metadata = {};
  };
  struct Reply {
    grpc::Status status;
    std::string bytes;
    std::string pushback_ms;  // empty: none
    bool never = false;       // leave the caller waiting until it gives up
  };
  using Handler = std::function<Reply(const Request&)>;

  explicit FakeServer(Handler handler, const std::string& address = "127.0.0.1:0")
      : handler_(std::move(handler)) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
    target_ = address.starts_with("unix:") ? address : "127.0.0.1:" + std::to_string(port);
  }
  ~FakeServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& target() const { return target_; }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(grpc::GenericCallbackServerContext* context, const Handler& handler)
        : context_(*context), handler_(handler) {
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return End(grpc::Status::CANCELLED);
      Request request{context_.method(), context_.peer(), FromBuffer(request_)};
      for (const auto& [key, value] : context_.client_metadata()) {
        request.metadata.emplace(std::string(key.data(), key.size()),
                                 std::string(value.data(), value.size()));
      }
      const Reply reply = handler_(request);
      if (reply.never) return;
      if (!reply.pushback_ms.empty()) {
        context_.AddTrailingMetadata("grpc-retry-pushback-ms", reply.pushback_ms);
      }
      if (!reply.status.ok()) return End(reply.status);
      response_ = ToBuffer(reply.bytes);
      if (!ended_.exchange(true)) StartWriteAndFinish(&response_, {}, reply.status);
    }
    void OnCancel() override {
      if (context_.IsCancelled()) End(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    // A caller may give up while its message is still being read: whoever comes first ends the
    // call.
    void End(const grpc::Status& status) {
      if (!ended_.exchange(true)) Finish(status);
    }

    grpc::GenericCallbackServerContext& context_;
    const Handler& handler_;
    std::atomic<bool> ended_ = false;
    grpc::ByteBuffer request_;
    grpc::ByteBuffer response_;
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Reactor(context, handler_);
  }

  Handler handler_;
  std::unique_ptr<grpc::Server> server_;
  std::string target_;
};

}  // namespace phasor::client_internal

#endif  // PHASOR_TESTS_CLIENT_GRPC_FAKE_SERVER_H_
