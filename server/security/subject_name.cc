// SPDX-License-Identifier: Apache-2.0
// Tells types of subject alternative names apart by their text.
#include "server/security/subject_name.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"

namespace phasor::security {
namespace {

bool IsIp(const std::string& text) {
  if (text.find('\0') != text.npos) return false;  // inet_pton would see its beginning only
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// Whether the text begins with the scheme of RFC 3986 and a colon.
bool HasScheme(const std::string& text) {
  const auto colon = std::find(text.begin(), text.end(), ':');
  return colon != text.end() && colon != text.begin() &&
         std::all_of(text.begin(), colon, [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '-' ||
                  c == '.';
         });
}

}  // namespace

NameType TypeOfName(const std::string& text) {
  if (IsIp(text)) return NameType::kIp;
  if (HasScheme(text)) return NameType::kUri;
  return text.find('@') == text.npos ? NameType::kDns : NameType::kEmail;
}

}  // namespace phasor::security
