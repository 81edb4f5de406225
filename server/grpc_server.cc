// SPDX-License-Identifier: Apache-2.0
// See grpc_server.h.
#include "server/grpc_server.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/impl/server_builder_option.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "server/server_grpc_log.h"

namespace phasor {
namespace {

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

std::shared_ptr<Acceptor> AddAcceptor(grpc::ServerBuilder* builder,
                                      const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  return builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
}

bool IsUnixSocket(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

class PluginFilter final : public grpc::ServerBuilderOption {
 public:
  explicit PluginFilter(std::vector<std::string> names) : names_(std::move(names)) {}
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    const auto unwanted = [this](const std::unique_ptr<grpc::ServerBuilderPlugin>& plugin) {
      return std::find(names_.begin(), names_.end(), plugin->name()) == names_.end();
    };
    plugins->erase(std::remove_if(plugins->begin(), plugins->end(), unwanted), plugins->end());
  }

 private:
  const std::vector<std::string> names_;
};

}  // namespace

void SetProcessWideGrpcOptions() {
  static const bool once = [] {
    ForwardGrpcLog();
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::channelz::experimental::InitChannelzService();
    return true;
  }();
  static_cast<void>(once);
}

void KeepPlugins(grpc::ServerBuilder* builder, std::vector<std::string> names) {
  builder->SetOption(std::make_unique<PluginFilter>(std::move(names)));
}

std::unique_ptr<grpc::Server> ServeConnections(
    grpc::ServerBuilder* builder, Listener* listener,
    const std::shared_ptr<grpc::ServerCredentials>& tls) {
  const std::shared_ptr<Acceptor> plain = AddAcceptor(builder, grpc::InsecureServerCredentials());
  const std::shared_ptr<Acceptor> tcp = tls == nullptr ? plain : AddAcceptor(builder, tls);
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server == nullptr) return nullptr;
  listener->Start([plain, tcp](int listening_fd, int fd) {
    Acceptor::NewConnectionParameters connection;
    connection.listener_fd = listening_fd;
    connection.fd = fd;
    (IsUnixSocket(fd) ? plain : tcp)->HandleNewConnection(&connection);
  });
  return server;
}

}  // namespace phasor
