// SPDX-License-Identifier: Apache-2.0
// TokenTable: the names and hashes of bearer tokens.
#ifndef PHASOR_SERVER_SECURITY_TOKEN_TABLE_H_
#define PHASOR_SERVER_SECURITY_TOKEN_TABLE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace phasor::security {

// Shorter tokens are always refused: they could be guessed from their hash or by trying.
inline constexpr size_t kMinTokenBytes = 32;

// The tokens that the server accepts; immutable. Threads: any.
class TokenTable {
 public:
  TokenTable() = default;

  // Parses lines `name sha256:HEX`; # begins a comment. A name may have several tokens, all of
  // which are valid, so that a token can be replaced. INVALID_ARGUMENT "<path>:<line>: ...":
  // messages contain nothing of the line, because it could be a token.
  static absl::StatusOr<TokenTable> Parse(std::string_view text, const std::string& path);

  // The name whose token this is. Takes the same time for all tokens of the same length.
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
