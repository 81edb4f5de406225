// SPDX-License-Identifier: Apache-2.0
// What a server's options say about who may connect and call, loaded and kept up to date.
#ifndef PHASOR_SERVER_SERVER_SECURITY_H_
#define PHASOR_SERVER_SERVER_SECURITY_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "server/config/options.h"
#include "server/grpc/access.h"
#include "server/grpc/tls_credentials.h"

namespace phasor {

// Owns a thread that looks at the files. Threads: any. Must outlive the gRPC server.
class ServerSecurity {
 public:
  // `services`: as Access::Load. INVALID_ARGUMENT: a file cannot be read or is wrong.
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Load(
      const ServerOptions& options, absl::Span<const std::string> services);
  ~ServerSecurity();

  // For TCP; nullptr: plaintext.
  std::shared_ptr<grpc::ServerCredentials> credentials() const;
  // nullptr: everybody may everything.
  rpc::Access* access() const { return access_.get(); }

  // Reads every file again, changed or not. What is wrong stays as it was, with all of its kind
  // (certificates; tokens and policy), and is logged and returned.
  absl::Status Reload();

 private:
  explicit ServerSecurity(absl::Duration interval) : interval_(interval) {}
  void Watch();
  // Reads what changed, or all. Logs.
  absl::Status Read(bool all);

  const absl::Duration interval_;
  std::unique_ptr<rpc::TlsCredentials> tls_;
  std::unique_ptr<rpc::Access> access_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::Mutex reading_mu_;  // one reads at a time
  std::thread thread_;      // not joinable: there are no files
};

}  // namespace phasor

#endif  // PHASOR_SERVER_SERVER_SECURITY_H_
