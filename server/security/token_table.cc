// SPDX-License-Identifier: Apache-2.0
// Parses the token file, and compares tokens in constant time.
#include "server/security/token_table.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/invalid.h"
#include "server/base/digest.h"

namespace phasor::security {
namespace {

constexpr size_t kDigestDigits = 64;

bool IsName(const std::string& name) {
  const auto accepted = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), accepted);
}

bool IsDigest(const std::string& text) {
  const auto is_digit = [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); };
  return text.size() == kDigestDigits && std::all_of(text.begin(), text.end(), is_digit);
}

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Parse(std::string_view text, const std::string& path) {
  TokenTable table;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    absl::string_view digest = words.back();
    if (words.size() != 2 || !IsName(words[0]) || !absl::ConsumePrefix(&digest, "sha256:") ||
        !IsDigest(std::string(digest))) {
      return Invalid(path, ":", number,
                     ": not a token; must be: name sha256:64 hexadecimal digits; a name has "
                     "letters, digits, '.', '_' and '-'");
    }
    table.entries_.push_back({words[0], absl::AsciiStrToLower(digest)});
  }
  return table;
}

std::optional<std::string> TokenTable::NameOf(std::string_view token) const {
  const std::string digest = DigestOf(token.data(), token.size());
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {  // always all: the time must not tell which one matched
    if (CRYPTO_memcmp(entry.sha256.data(), digest.data(), kDigestDigits) == 0) found = &entry;
  }
  if (found == nullptr || token.size() < kMinTokenBytes) return std::nullopt;
  return found->name;
}

}  // namespace phasor::security
