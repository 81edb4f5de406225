// SPDX-License-Identifier: Apache-2.0
// The echo server of `phasor bench`: its service, the process that it runs in, and calls to it.
#include "client/cli/echo.h"

#include <fcntl.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "kernels/base/steady_time.h"
#include "kernels/base/text.h"

namespace phasor::cli {
namespace {

constexpr char kMethod[] = "/bytes/";
constexpr int kFrameBytes = 4 << 20;  // as Phasor's client and server

// Reads one request and answers with `reply`, if there is one.
class Reactor final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Reactor(std::optional<grpc::ByteBuffer> reply) {
    if (reply.has_value()) {
      reply_ = *std::move(reply);
      StartRead(&request_);
    } else {
      Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, kMethod));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartWriteAndFinish(&reply_, {}, grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
};

// The service whose method "/bytes/N" answers N bytes. Threads: any.
class Service final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Reactor(ReplyTo(context->method()));
  }

  std::optional<grpc::ByteBuffer> ReplyTo(absl::string_view method) {
    int64_t bytes = 0;
    if (!absl::ConsumePrefix(&method, kMethod) || !absl::SimpleAtoi(method, &bytes) || bytes < 0 ||
        bytes > kMaxEchoBytes) {
      return std::nullopt;
    }
    absl::MutexLock lock(&mu_);
    if (static_cast<int64_t>(reply_.Length()) != bytes || !reply_.Valid()) {
      const grpc::Slice slice(std::string(static_cast<size_t>(bytes), '\x5A'));
      reply_ = grpc::ByteBuffer(&slice, 1);
    }
    return reply_;
  }

  absl::Mutex mu_;
  grpc::ByteBuffer reply_;  // to the last method
};

absl::Status Call(grpc::GenericStub& stub, const std::string& method,
                  const grpc::ByteBuffer& request, absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(WallTimeAfter(timeout));
  grpc::ByteBuffer reply;
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &reply, [&](grpc::Status got) {
    status = std::move(got);
    done.Notify();
  });
  done.WaitForNotification();
  // Both enumerations have the same codes.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace

absl::Status ServeEcho(const std::string& unix_path) {
  const std::string address = unix_path.empty() ? "127.0.0.1:0" : StrCat("unix:", unix_path);
  Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr)
    return absl::InternalError(StrCat("echo: cannot listen on ", address, "; must be free"));
  std::printf("%s\n", unix_path.empty() ? StrCat("127.0.0.1:", port).c_str() : address.c_str());
  std::fflush(stdout);
  char ignored;
  while (read(STDIN_FILENO, &ignored, 1) > 0) {
  }
  server->Shutdown(std::chrono::system_clock::now());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<EchoServer>> EchoServer::Start(const std::string& program,
                                                              bool unix_socket) {
  std::unique_ptr<EchoServer> server(new EchoServer);
  std::vector<std::string> command = {program, "echo-server"};
  if (unix_socket) {
    char directory[] = "/tmp/phasor-echo-XXXXXX";
    if (mkdtemp(directory) == nullptr)
      return absl::InternalError("echo: no directory in /tmp; must be writable");
    server->directory_ = directory;
    command.insert(command.end(), {"--unix", StrCat(server->directory_, "/echo.sock")});
  }
  int input[2];
  int output[2];
  if (pipe2(input, O_CLOEXEC) != 0)
    return absl::InternalError("echo: no file descriptor left for a pipe; raise RLIMIT_NOFILE");
  server->to_child_ = input[1];
  if (pipe2(output, O_CLOEXEC) != 0) {
    close(input[0]);
    return absl::InternalError("echo: no file descriptor left for a pipe; raise RLIMIT_NOFILE");
  }
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // Ctrl-C goes to the parent only
  const int error =
      posix_spawn(&server->pid_, program.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(input[0]);
  close(output[1]);
  for (char c = 0; error == 0 && read(output[0], &c, 1) == 1 && c != '\n';) {
    server->address_.push_back(c);
  }
  close(output[0]);
  if (error != 0) server->pid_ = 0;
  if (server->address_.empty()) {
    return absl::InternalError(
        StrCat("echo: ", program, " echo-server does not serve; run it by hand to see why"));
  }
  return server;
}

EchoServer::~EchoServer() {
  if (to_child_ >= 0) close(to_child_);  // the child ends
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  if (directory_.empty()) return;
  unlink(StrCat(directory_, "/echo.sock").c_str());
  rmdir(directory_.c_str());
}

std::vector<Operation> EchoOperations(const std::string& address, const EchoSizes& sizes,
                                      int workers, int channels, absl::Duration timeout) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(INT_MAX);
  args.SetMaxSendMessageSize(INT_MAX);
  args.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::vector<std::shared_ptr<grpc::GenericStub>> stubs;
  for (int i = 0; i < channels; ++i) {
    stubs.push_back(std::make_shared<grpc::GenericStub>(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), args)));
  }
  const grpc::Slice slice(std::string(static_cast<size_t>(sizes.request_bytes), '\x5A'));
  const grpc::ByteBuffer request(&slice, 1);
  const std::string method = StrCat(kMethod, sizes.reply_bytes);
  std::vector<Operation> operations;
  for (int i = 0; i < workers; ++i) {
    operations.push_back([stub = stubs[static_cast<size_t>(i % channels)], method, request,
                          timeout] { return Call(*stub, method, request, timeout); });
  }
  return operations;
}

}  // namespace phasor::cli
