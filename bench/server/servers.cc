// SPDX-License-Identifier: Apache-2.0
// The handler of generated messages, the child processes that serve, and the handles of their
// parent.
#include "bench/server/servers.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bench/harness.h"
#include "bench/server/echo.h"
#include "bench/server/raw_client.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"
#include "kernels/base/cores.h"
#include "kernels/request/request.h"
#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "proto/convert.h"
#include "proto/grpc_status.h"
#include "server/base/process.h"
#include "server/grpc/callback_threads.h"
#include "server/server.h"

namespace phasor::bench {
namespace {

// ApplyRoPE as most would first write it: generated messages, tensors in strings, the same kernels.
class ProtobufService final : public v1::PositionEmbeddingService::CallbackService {
 public:
  explicit ProtobufService(Backend* backend) : backend_(*backend) {}

  grpc::ServerUnaryReactor* ApplyRoPE(grpc::CallbackServerContext* context,
                                      const v1::ApplyRoPERequest* request,
                                      v1::ApplyRoPEResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(Rotate(*request, response)));
    return reactor;
  }

 private:
  // Supports what the benchmark sends: positions as ranges, and dense tensors.
  absl::Status Rotate(const v1::ApplyRoPERequest& request, v1::ApplyRoPEResponse* response) {
    auto values = RopeRequestFromWire(request.item(), "item");
    if (!values.ok()) return values.status();
    auto prepared = PrepareRope(*values, CompilePlan, "item");
    if (!prepared.ok()) return prepared.status();
    std::vector<const std::byte*> x;
    std::vector<std::byte*> y;
    for (size_t i = 0; i < prepared->tensors.size(); ++i) {
      const std::string& raw = request.raw(static_cast<int>(i));
      std::string* out = response->add_raw();
      out->resize(raw.size());
      *response->mutable_result()->add_tensors() = ToWire(values->tensors[i]);
      x.push_back(reinterpret_cast<const std::byte*>(raw.data()));
      y.push_back(reinterpret_cast<std::byte*>(out->data()));
    }
    const Job job = MakeRotaryJob(*prepared, x, y);
    return backend_.Run({&job, 1});
  }

  Backend& backend_;
};

// Prints the address and waits until the parent closes the pipe.
void ServeUntilEnd(const std::string& tcp_address) {
  std::printf("%s\n", tcp_address.c_str());
  std::fflush(stdout);
  char ignored;
  while (read(STDIN_FILENO, &ignored, 1) > 0) {
  }
}

int ServePhasor(const std::string& unix_path) {
  ChooseLockOrderChecks();
  LimitHeaps(UsableCores());
  ServerOptions options;
  options.listen = {"127.0.0.1:0", unix_path};
  options.lease_socket = absl::StrCat(absl::StripPrefix(unix_path, "unix:"), ".lease");
  options.log_level = "error";
  const auto server = Server::Start(options);
  if (!server.ok()) Die(server.status().ToString());
  (*server)->ReceiveOnFewThreads(UsableCores());
  ServeUntilEnd((*server)->listeners()[0]);
  return 0;
}

int ServeService(const std::string& unix_path, grpc::Service* service,
                 bool on_few_threads = false) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.AddListeningPort(unix_path, grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) Die("a server does not start");
  std::optional<CallbackThreads> held;
  if (on_few_threads) held.emplace(ReceivingThreads(UsableCores()), [] { return false; });
  ServeUntilEnd(absl::StrCat("127.0.0.1:", port));
  return 0;
}

}  // namespace

int Serve(const std::string& kind, const std::string& unix_path, int64_t reply_bytes) {
  if (kind == "phasor") return ServePhasor(unix_path);
  if (kind == "echo") return ServeService(unix_path, MakeEchoService(reply_bytes).get());
  if (kind == "few_threads_echo") {
    return ServeService(unix_path, MakeEchoService(reply_bytes).get(), /*on_few_threads=*/true);
  }
  if (kind == "busy_echo") {
    return ServeService(unix_path, MakeEchoService(reply_bytes, absl::Microseconds(3)).get(),
                        /*on_few_threads=*/true);
  }
  if (kind == "copy") return ServeService(unix_path, MakeCopyingService().get());
  const auto backend = MakeBackend({});
  if (!backend.ok()) Die(backend.status().ToString());
  ProtobufService service(backend->get());
  return ServeService(unix_path, &service);
}

}  // namespace phasor::bench
