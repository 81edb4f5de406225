// SPDX-License-Identifier: Apache-2.0
// The decision about a call: who makes it, whether it may, and what it may hold.
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

// Where the rules are. No tokens and no client certificates: everybody may everything.
struct RuleFiles {
  std::string tokens;                // empty: none
  std::string policy;                // empty: whoever is known may everything
  bool client_certificates = false;  // TLS takes connections with a verified one only
};

// What a call shows of its caller.
struct Presented {
  std::vector<std::string> authorization;  // all values of that metadata
  bool certificate = false;                // the connection's is verified
  std::vector<std::string> names;          // subject alternative names of it, in order
  bool unix_socket = false;
};

// Bytes that an identity may have in flight.
using Quota = Admission;

struct Decision {
  absl::Status status;           // UNAUTHENTICATED, PERMISSION_DENIED
  std::string identity;          // "token:ci", "san:a.example.org", "unix"; empty: not known
  std::shared_ptr<Quota> quota;  // nullptr: without bounds
  int64_t max_regions = kUnlimited;
};

// Immutable but for the quotas. Threads: any.
class Rules {
 public:
  // Reads the files. `known`: as Policy::Parse. `before`: whose quotas go on counting where their
  // bounds are the same; nullptr: none. INVALID_ARGUMENT: a file cannot be read or is wrong.
  static absl::StatusOr<std::shared_ptr<const Rules>> Load(const RuleFiles& files,
                                                           absl::Span<const std::string> known,
                                                           const Rules* before);

  // `method`: "package.Service/Method".
  Decision Decide(const Presented& caller, std::string_view method) const;

 private:
  struct BoundedQuota {
    int64_t max_bytes;
    std::shared_ptr<Quota> quota;
  };

  // The identities that the caller may act as, best first; or UNAUTHENTICATED.
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
