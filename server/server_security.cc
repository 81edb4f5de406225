// SPDX-License-Identifier: Apache-2.0
// Loads certificates, tokens and policy, and reloads them when their files change.
#include "server/server_security.h"

#include "kernels/base/status_macros.h"
#include "server/base/log.h"

namespace phasor {
namespace {

// Reads files of one kind and logs the result. `*again`: whether they have to be read again
// although they do not change, because what failed was not in them but a lack of descriptors or
// memory.
template <typename Files>
absl::Status ReadAndLog(Files* files, const char* what, bool* again) {
  absl::Status status = files->Reload();
  *again = !status.ok() && !absl::IsInvalidArgument(status);
  if (status.ok()) {
    Log(LogLevel::kInfo, "credentials loaded", {{"what", std::string(what)}});
  } else {
    Log(LogLevel::kError, "credentials kept as they were",
        {{"what", std::string(what)}, {"error", std::string(status.message())}});
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerSecurity>> ServerSecurity::Load(
    const ServerOptions& options, absl::Span<const std::string> services) {
  std::unique_ptr<ServerSecurity> security(new ServerSecurity(options.credentials_reload_interval));
  if (!options.tls_cert.empty()) {
    PHASOR_ASSIGN_OR_RETURN(
        security->tls_,
        rpc::TlsCredentials::Load({options.tls_cert, options.tls_key, options.tls_client_ca}));
    Log(LogLevel::kInfo, "TLS certificate",
        {{"serial", security->tls_->serial()},
         {"not_after",
          absl::FormatTime(absl::RFC3339_sec, security->tls_->not_after(), absl::UTCTimeZone())}});
  }
  if (!options.tokens_file.empty() || !options.tls_client_ca.empty()) {
    const security::RuleFiles files = {options.tokens_file, options.policy_file,
                                       !options.tls_client_ca.empty()};
    PHASOR_ASSIGN_OR_RETURN(security->access_, rpc::Access::Load(files, services));
  }
  if (security->tls_ != nullptr || security->access_ != nullptr) {
    security->thread_ = std::thread([raw = security.get()] { raw->Watch(); });
  }
  return security;
}

ServerSecurity::~ServerSecurity() {
  stop_.Stop();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<grpc::ServerCredentials> ServerSecurity::credentials() const {
  return tls_ == nullptr ? nullptr : tls_->credentials();
}

absl::Status ServerSecurity::Reload() { return Read(/*all=*/true); }

void ServerSecurity::Watch() {
  while (!stop_.WaitFor(interval_)) (void)Read(/*all=*/false);  // errors are logged
}

absl::Status ServerSecurity::Read(bool all) {
  absl::MutexLock lock(&reading_mu_);
  absl::Status status;
  if (tls_ != nullptr && (all || tls_again_ || tls_->Changed())) {
    status.Update(ReadAndLog(tls_.get(), "TLS", &tls_again_));
  }
  if (access_ != nullptr && (all || access_again_ || access_->Changed())) {
    status.Update(ReadAndLog(access_.get(), "tokens and policy", &access_again_));
  }
  return status;
}

}  // namespace phasor
