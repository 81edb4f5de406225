// SPDX-License-Identifier: Apache-2.0
// Bearer tokens as the server knows them: names and hashes.
#ifndef PHASOR_SERVER_SECURITY_TOKEN_TABLE_H_
#define PHASOR_SERVER_SECURITY_TOKEN_TABLE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace phasor::security {

// A token of fewer characters is refused, whatever the file says: a short one can be guessed from
// its hash, and tried.
inline constexpr size_t kMinTokenBytes = 32;

// Immutable. Threads: any.
class TokenTable {
 public:
  TokenTable() = default;

  // Lines `name sha256:HEX`; # begins a comment. A name may have several tokens, of which all are
  // good: that is how one is replaced. INVALID_ARGUMENT "<path>:<line>: ...": nothing of the line
  // is repeated, it could be a token.
  static absl::StatusOr<TokenTable> Parse(std::string_view text, const std::string& path);

  // Whose token it is. Takes the same time for every token of one length.
  std::optional<std::string> NameOf(std::string_view token) const;

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string name;
    std::string sha256;  // 64 lower-case hexadecimal digits
  };
  std::vector<Entry> entries_;
};

}  // namespace phasor::security

#endif  // PHASOR_SERVER_SECURITY_TOKEN_TABLE_H_
