// SPDX-License-Identifier: Apache-2.0
// ServerSecurity: who may connect and call, from the files in the server's options.
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
#include "server/base/stop_signal.h"
#include "server/config/options.h"
#include "server/grpc/access.h"
#include "server/grpc/tls_credentials.h"

namespace phasor {

// Loads the files and keeps them up to date. Owns a thread that watches them. Must outlive the gRPC
// server. Threads: any.
class ServerSecurity {
 public:
  // `services` is as in Access::Load. INVALID_ARGUMENT: a file cannot be read or is invalid.
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Load(
      const ServerOptions& options, absl::Span<const std::string> services);
  ~ServerSecurity();

  // Credentials for TCP; nullptr: plaintext.
  std::shared_ptr<grpc::ServerCredentials> credentials() const;
  // nullptr: everyone may call everything.
  rpc::Access* access() const { return access_.get(); }

  // Reads all files again, changed or not. If a file is invalid, all of its kind (certificates;
  // tokens and policy) stay as they were, and the error is logged and returned.
  absl::Status Reload();

 private:
  explicit ServerSecurity(absl::Duration interval) : interval_(interval) {}
  void Watch();
  // Reads files that have changed or could not be read, or all. Logs the result.
  absl::Status Read(bool all);

  const absl::Duration interval_;
  std::unique_ptr<rpc::TlsCredentials> tls_;
  std::unique_ptr<rpc::Access> access_;
  StopSignal stop_;
  absl::Mutex reading_mu_;  // one thread reads at a time
  bool tls_again_ ABSL_GUARDED_BY(reading_mu_) = false;
  bool access_again_ ABSL_GUARDED_BY(reading_mu_) = false;
  std::thread thread_;  // not joinable if there are no files
};

}  // namespace phasor

#endif  // PHASOR_SERVER_SERVER_SECURITY_H_
