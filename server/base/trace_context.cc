// SPDX-License-Identifier: Apache-2.0
// Parses traceparent, "00-<trace id, 32>-<parent id, 16>-<flags, 2>" in lower-case hexadecimal, and
// makes ids. Later versions may append more.
#include "server/base/trace_context.h"

#include <algorithm>

#include "absl/random/random.h"
#include "absl/strings/escaping.h"

namespace phasor {
namespace {

constexpr size_t kLength = 55;

bool IsLowerHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(std::string_view hex) { return hex.find_first_not_of('0') == std::string_view::npos; }

std::string BytesOf(std::string_view hex) {
  return absl::HexStringToBytes(absl::string_view(hex.data(), hex.size()));
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kLength || (text.size() > kLength && text[kLength] != '-')) return std::nullopt;
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  const std::string_view version = text.substr(0, 2), trace = text.substr(3, 32),
                         span = text.substr(36, 16), flags = text.substr(53, 2);
  if (version == "00" && text.size() > kLength) return std::nullopt;
  for (const std::string_view part : {version, trace, span, flags}) {
    if (!IsLowerHex(part)) return std::nullopt;
  }
  if (version == "ff" || IsZero(trace) || IsZero(span)) return std::nullopt;
  return TraceContext{BytesOf(trace), BytesOf(span), (BytesOf(flags)[0] & 1) != 0};
}

std::string RandomId(size_t bytes) {
  thread_local absl::InsecureBitGen random;
  std::string id(bytes, '\0');
  do {
    for (char& c : id) c = static_cast<char>(absl::Uniform<int>(random, 0, 256));
  } while (id.find_first_not_of('\0') == std::string::npos);
  return id;
}

}  // namespace phasor
