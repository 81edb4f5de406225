// SPDX-License-Identifier: Apache-2.0
// Finds the identity of a caller, and decides by policy whether it may call a method.
#include "server/security/rules.h"

#include <utility>

#include "absl/strings/match.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/security/credential_file.h"

namespace phasor::security {
namespace {

constexpr absl::string_view kBearer = "Bearer ";  // the case of letters is ignored, as in HTTP

absl::Status Unauthenticated(std::string_view problem) {
  return absl::UnauthenticatedError(StrCat("authorization: ", problem));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Rules>> Rules::Load(const RuleFiles& files,
                                                         absl::Span<const std::string> known,
                                                         const Rules* before) {
  auto rules = std::make_shared<Rules>();
  rules->files_ = files;
  if (!files.tokens.empty()) {
    PHASOR_ASSIGN_OR_RETURN(const std::string text, ReadFile("tokens-file", files.tokens));
    PHASOR_ASSIGN_OR_RETURN(rules->tokens_,
                            TokenTable::Parse(text, StrCat("tokens-file: ", files.tokens)));
  }
  if (!files.policy.empty()) {
    PHASOR_RETURN_IF_ERROR(rules->ReadPolicy(files.policy, known, before));
  }
  return rules;
}

absl::Status Rules::ReadPolicy(const std::string& path, absl::Span<const std::string> known,
                               const Rules* before) {
  PHASOR_ASSIGN_OR_RETURN(const std::string text, ReadFile("policy-file", path));
  PHASOR_ASSIGN_OR_RETURN(policy_, Policy::Parse(text, StrCat("policy-file: ", path), known));
  for (const auto& [name, grant] : policy_->grants()) {
    if (grant.max_inflight_bytes == kUnlimited) continue;
    BoundedQuota& mine = quotas_[name];
    mine.max_bytes = grant.max_inflight_bytes;
    if (before != nullptr) {
      const auto old = before->quotas_.find(name);
      if (old != before->quotas_.end() && old->second.max_bytes == mine.max_bytes) {
        mine.quota = old->second.quota;
      }
    }
    if (mine.quota == nullptr) mine.quota = std::make_shared<Quota>(mine.max_bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Rules::IdentitiesOf(const Presented& caller) const {
  const bool takes_tokens = !files_.tokens.empty();
  if (takes_tokens && !caller.authorization.empty()) {
    if (caller.authorization.size() > 1) return Unauthenticated("given twice; must be given once");
    const std::string_view value = caller.authorization[0];
    if (!absl::StartsWithIgnoreCase({value.data(), value.size()}, kBearer))
      return Unauthenticated("not a token; must be 'Bearer TOKEN'");
    const auto name = tokens_.NameOf(value.substr(kBearer.size()));
    if (!name.has_value()) return Unauthenticated("the token is not known; must be a valid one");
    return std::vector<std::string>{StrCat("token:", *name)};
  }
  if (files_.client_certificates && caller.certificate) {
    std::vector<std::string> identities;
    for (const std::string& name : caller.names) identities.push_back(StrCat("san:", name));
    return identities;
  }
  // The permissions of the socket file have admitted this caller.
  if (!takes_tokens && caller.unix_socket) return std::vector<std::string>{"unix"};
  return Unauthenticated(takes_tokens ? "not set; must be 'Bearer TOKEN'"
                                      : "no client certificate, there must be one");
}

Decision Rules::Decide(const Presented& caller, std::string_view method) const {
  Decision decision;
  if (files_.tokens.empty() && !files_.client_certificates) return decision;
  absl::StatusOr<std::vector<std::string>> identities = IdentitiesOf(caller);
  if (!identities.ok()) {
    decision.status = std::move(identities).status();
    return decision;
  }
  if (!identities->empty()) decision.identity = identities->front();
  if (!policy_.has_value()) return decision;
  const Grant* grant = nullptr;
  std::string name = "*";
  for (const std::string& identity : *identities) {
    std::string candidate;
    const Grant* const found = policy_->Find(identity, &candidate);
    // A grant for a named identity wins over the grant of "*".
    if (found == nullptr || (grant != nullptr && candidate == "*")) continue;
    grant = found;
    name = std::move(candidate);
    decision.identity = identity;
    if (name != "*") break;
  }
  if (grant == nullptr || !grant->Allows(method)) {
    decision.status = absl::PermissionDeniedError(StrCat(
        "method: ", decision.identity.empty() ? "a caller without a name" : decision.identity,
        " may not call ", method, "; ask who keeps the server's policy"));
    return decision;
  }
  const auto quota = quotas_.find(name);
  if (quota != quotas_.end()) decision.quota = quota->second.quota;
  decision.max_regions = grant->max_regions;
  return decision;
}

}  // namespace phasor::security
