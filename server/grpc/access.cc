// SPDX-License-Identifier: Apache-2.0
// Decides about each call with the current rules, and reloads the rules when files change.
#include "server/grpc/access.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_replace.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/grpc/call_context.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/caller.h"
#include "server/grpc/service_methods.h"
#include "server/security/credential_file.h"
#include "server/security/subject_name.h"

namespace phasor::rpc {
namespace {

constexpr char kAuthorization[] = "authorization";
constexpr char kSubjectNames[] = "x509_subject_alternative_name";
constexpr char kCertificate[] = "x509_pem_cert";

std::string Text(grpc::string_ref text) { return std::string(text.data(), text.size()); }

// Under which property gRPC keeps the subject alternative names of a type.
const char* PropertyOf(security::NameType type) {
  switch (type) {
    case security::NameType::kUri:
      return GRPC_PEER_URI_PROPERTY_NAME;
    case security::NameType::kDns:
      return GRPC_PEER_DNS_PROPERTY_NAME;
    case security::NameType::kEmail:
      return GRPC_PEER_EMAIL_PROPERTY_NAME;
    case security::NameType::kIp:
      return GRPC_PEER_IP_PROPERTY_NAME;
  }
  return "";
}

// The subject alternative names in the order of the certificate, without those whose text is that
// of a name of another type.
std::vector<std::string> NamesOf(const grpc::AuthContext& connection) {
  std::vector<std::string> names;
  for (const grpc::string_ref& subject : connection.FindPropertyValues(kSubjectNames)) {
    std::string name = Text(subject);
    const auto of_type = connection.FindPropertyValues(PropertyOf(security::TypeOfName(name)));
    if (std::find(of_type.begin(), of_type.end(), subject) != of_type.end()) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

security::Presented PresentedBy(const grpc::CallbackServerContext& context) {
  security::Presented caller;
  const auto [first, last] = context.client_metadata().equal_range(kAuthorization);
  for (auto value = first; value != last; ++value) {
    caller.authorization.push_back(Text(value->second));
  }
  if (const auto connection = context.auth_context(); connection != nullptr) {
    caller.certificate = !connection->FindPropertyValues(kCertificate).empty();
    caller.names = NamesOf(*connection);
  }
  caller.unix_socket = context.peer().starts_with("unix:");
  return caller;
}

}  // namespace

Access::Access(security::RuleFiles files, std::vector<std::string> methods)
    : files_(std::move(files)), methods_(std::move(methods)) {}

absl::StatusOr<std::unique_ptr<Access>> Access::Load(const security::RuleFiles& files,
                                                     absl::Span<const std::string> services) {
  std::unique_ptr<Access> access(new Access(files, ServiceMethods(services)));
  PHASOR_RETURN_IF_ERROR(access->Reload());
  return access;
}

absl::Status Access::Reload() {
  // Take the stamps before reading the files, so that a write in between counts as a change.
  std::vector<FileStamp> stamps = Stamps();
  auto rules = security::Rules::Load(files_, methods_, this->rules().get());
  absl::MutexLock lock(&mu_);
  stamps_ = std::move(stamps);
  PHASOR_RETURN_IF_ERROR(rules.status());
  rules_ = *std::move(rules);
  return absl::OkStatus();
}

bool Access::Changed() const {
  const std::vector<FileStamp> now = Stamps();
  absl::MutexLock lock(&mu_);
  return now != stamps_;
}

std::vector<FileStamp> Access::Stamps() const {
  return security::StampsOf({files_.tokens, files_.policy});
}

AccessStats Access::stats() const {
  return {unauthenticated_.load(std::memory_order_relaxed),
          permission_denied_.load(std::memory_order_relaxed)};
}

std::shared_ptr<const security::Rules> Access::rules() const {
  absl::MutexLock lock(&mu_);
  return rules_;
}

void Access::Count(const absl::Status& refusal) {
  auto& count = absl::IsUnauthenticated(refusal) ? unauthenticated_ : permission_denied_;
  count.fetch_add(1, std::memory_order_relaxed);
}

absl::Status Refusal(grpc::CallbackServerContext* context) {
  CallContext* const call = CallContext::Of(context);
  if (call == nullptr) return absl::OkStatus();
  if (!call->refusal.ok()) return call->refusal;
  if (call->late) return Draining();
  if (call->access == nullptr) return absl::OkStatus();
  call->decision = call->access->rules()->Decide(PresentedBy(*context), call->method);
  if (!call->decision.status.ok()) call->access->Count(call->decision.status);
  return call->decision.status;
}

memory::RegionCaller RegionCallerOf(const grpc::CallbackServerContext& context) {
  const CallContext* const call = CallContext::Of(&context);
  std::string peer = context.peer();
  const bool remote = IsRemotePeer(peer);
  if (call == nullptr) return {.peer = std::move(peer), .remote = remote};
  if (call->connections != nullptr && !peer.starts_with("unix:")) {
    peer = call->connections->NameOf(AddressOfPeer(peer));
  }
  return {std::move(peer), call->decision.identity, call->decision.max_regions, remote};
}

CallerQuota::CallerQuota(const grpc::CallbackServerContext& context) {
  const CallContext* const call = CallContext::Of(&context);
  if (call == nullptr || call->decision.quota == nullptr) return;
  quota_ = call->decision.quota;
  identity_ = call->decision.identity;
}

absl::StatusOr<Permit> CallerQuota::Take(int64_t bytes) const {
  if (quota_ == nullptr) return Permit();
  absl::StatusOr<Permit> permit = quota_->Take(bytes);
  if (permit.ok()) return permit;
  // The limit is not the server's, whose option the message names.
  const std::string why = absl::StrReplaceAll(
      permit.status().message(), {{"--max-inflight-bytes", "max_inflight_bytes of the policy"}});
  return absl::Status(permit.status().code(), StrCat("quota of ", identity_, ": ", why));
}

void KeepUntilSent(grpc::CallbackServerContext* context, Permit quota, Permit budget) {
  CallContext* const call = CallContext::Of(context);
  if (call == nullptr) return;
  call->quota_until_sent = std::move(quota);
  call->budget_until_sent = std::move(budget);
}

}  // namespace phasor::rpc
