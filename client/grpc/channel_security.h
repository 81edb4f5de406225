// SPDX-License-Identifier: Apache-2.0
// The security of a client's channels: TLS, and a token on every call.
#ifndef PHASOR_CLIENT_GRPC_CHANNEL_SECURITY_H_
#define PHASOR_CLIENT_GRPC_CHANNEL_SECURITY_H_

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/options.h"

namespace phasor::client_internal {

// A token: fixed, or from a file that may change. Threads: any.
class TokenSource {
 public:
  // INVALID_ARGUMENT: the file cannot be read, or it holds no token that a header can carry.
  static absl::StatusOr<std::shared_ptr<TokenSource>> Make(const ClientOptions& options);

  // The current token. Reads the file again if the last read was more than a second ago. If the
  // file is wrong by then, the old token stays.
  std::string Token(absl::Time now);

 private:
  explicit TokenSource(std::string path) : path_(std::move(path)) {}
  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;  // empty: fixed token
  std::mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
};

// TLS and token of one client. A plain value; copies share their state.
class ChannelSecurity {
 public:
  // Plaintext without a token.
  ChannelSecurity() = default;
  // `this_host`: the target can only be this host. `unix_socket`: the target is a Unix socket.
  // INVALID_ARGUMENT: a file cannot be read or is not PEM; TLS over a Unix socket; a token in
  // plaintext to another host without token_over_plaintext.
  static absl::StatusOr<ChannelSecurity> Make(const ClientOptions& options, bool this_host,
                                              bool unix_socket);

  std::shared_ptr<grpc::Channel> Connect(const std::string& target,
                                         grpc::ChannelArguments arguments) const;

 private:
  std::shared_ptr<grpc::ChannelCredentials> tls_;  // nullptr: plaintext
  std::string server_name_;
  std::shared_ptr<TokenSource> token_;  // nullptr: no token
};

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_GRPC_CHANNEL_SECURITY_H_
