// SPDX-License-Identifier: Apache-2.0
// Which identity may call which method, and how much it may hold (docs/security.md).
#ifndef PHASOR_SERVER_SECURITY_POLICY_H_
#define PHASOR_SERVER_SECURITY_POLICY_H_

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace phasor::security {

inline constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// What one identity may.
struct Grant {
  std::vector<std::string> methods;  // "*", "package.Service/*" or "package.Service/Method"
  int64_t max_inflight_bytes = kUnlimited;
  int64_t max_regions = kUnlimited;

  // `method`: "package.Service/Method".
  bool Allows(std::string_view method) const;
};

// Immutable. Threads: any.
class Policy {
 public:
  // JSON: {"identities": [{"identity": "token:ci", "methods": ["*"], "max_inflight_bytes": 1048576,
  // "max_regions": 4}]}. `known`: all methods there are, as "package.Service/Method".
  // INVALID_ARGUMENT "<path>: ...": not that, an identity twice, or a pattern that names no method.
  static absl::StatusOr<Policy> Parse(std::string_view text, const std::string& path,
                                      absl::Span<const std::string> known);

  // What `identity` ("token:ci", "san:a.example.org", "unix") may; that of "*" if it is not named;
  // nullptr: nothing. `name`: of the grant.
  const Grant* Find(const std::string& identity, std::string* name) const;
  const std::map<std::string, Grant>& grants() const { return grants_; }

 private:
  std::map<std::string, Grant> grants_;
};

}  // namespace phasor::security

#endif  // PHASOR_SERVER_SECURITY_POLICY_H_
