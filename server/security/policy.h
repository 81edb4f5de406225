// SPDX-License-Identifier: Apache-2.0
// Policy: which identity may call which methods, and how much it may use (docs/security.md).
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

// What an identity may do.
struct Grant {
  std::vector<std::string> methods;  // "*", "package.Service/*" or "package.Service/Method"
  int64_t max_inflight_bytes = kUnlimited;
  int64_t max_regions = kUnlimited;

  // `method` has the form "package.Service/Method".
  bool Allows(std::string_view method) const;
};

// A parsed policy; immutable. Threads: any.
class Policy {
 public:
  // Parses JSON like {"identities": [{"identity": "token:ci", "methods": ["*"],
  // "max_inflight_bytes": 1048576, "max_regions": 4}]}. `known` lists all methods as
  // "package.Service/Method".
  // INVALID_ARGUMENT "<path>: ...": another form, an identity that occurs twice, or a pattern that
  // matches no method.
  static absl::StatusOr<Policy> Parse(std::string_view text, const std::string& path,
                                      absl::Span<const std::string> known);

  // The grant of `identity`, such as "token:ci", "san:a.example.org" or "unix". If the policy does
  // not name it, the grant of "*"; nullptr if there is none. Stores the name of the grant in
  // `name`.
  const Grant* Find(const std::string& identity, std::string* name) const;
  const std::map<std::string, Grant>& grants() const { return grants_; }

 private:
  std::map<std::string, Grant> grants_;
};

}  // namespace phasor::security

#endif  // PHASOR_SERVER_SECURITY_POLICY_H_
