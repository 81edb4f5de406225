// SPDX-License-Identifier: Apache-2.0
// The decision about a call: its identity, whether it is allowed, and how much it may use.
#ifndef PHASOR_SERVER_SECURITY_RULES_H_
#define PHASOR_SERVER_SECURITY_RULES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/base/admission.h"
#include "server/security/policy.h"
#include "server/security/token_table.h"

namespace phasor::security {

// Files and options of the rules. Without tokens and client certificates, everyone may call
// everything.
struct RuleFiles {
  std::string tokens;                // empty: no tokens
  std::string policy;                // empty: every known identity may call everything
  bool client_certificates = false;  // TLS accepts only verified certificates
};

// The credentials that a call presents.
struct Presented {
  std::vector<std::string> authorization;  // all values of this metadata key
  bool certificate = false;                // whether the connection has a verified one
  // Subject alternative names in it, in order. Only those of the type that TypeOfName says.
  std::vector<std::string> names;
  bool unix_socket = false;
};

// The bytes that an identity may have in flight.
using Quota = Admission;

// What the rules say about a call.
struct Decision {
  absl::Status status;           // UNAUTHENTICATED or PERMISSION_DENIED
  std::string identity;          // "token:ci", "san:a.example.org", "unix"; empty: unknown
  std::shared_ptr<Quota> quota;  // nullptr: no limit
  int64_t max_regions = kUnlimited;
};

// Tokens, policy and quotas. Immutable except for the quotas. Threads: any.
class Rules {
 public:
  // Reads the files. `known` is as in Policy::Parse. Quotas of `before` whose limits are unchanged
  // keep their counts; nullptr: none. INVALID_ARGUMENT: a file cannot be read or is invalid.
  static absl::StatusOr<std::shared_ptr<const Rules>> Load(const RuleFiles& files,
                                                           absl::Span<const std::string> known,
                                                           const Rules* before);

  // `method` has the form "package.Service/Method".
  Decision Decide(const Presented& caller, std::string_view method) const;

 private:
  struct BoundedQuota {
    int64_t max_bytes;
    std::shared_ptr<Quota> quota;
  };

  // The identities that the caller may act as, best first. UNAUTHENTICATED: none.
  absl::StatusOr<std::vector<std::string>> IdentitiesOf(const Presented& caller) const;
  absl::Status ReadPolicy(const std::string& path, absl::Span<const std::string> known,
                          const Rules* before);

  RuleFiles files_;
  TokenTable tokens_;
  std::optional<Policy> policy_;
  std::map<std::string, BoundedQuota> quotas_;  // by name of the grant
};

}  // namespace phasor::security

#endif  // PHASOR_SERVER_SECURITY_RULES_H_
