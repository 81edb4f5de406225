// SPDX-License-Identifier: Apache-2.0
// Parses and formats single values.
#include "server/config/option_values.h"

#include <array>
#include <charconv>
#include <limits>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace phasor {
namespace {

struct ByteUnit {
  const char* suffix;
  int64_t bytes;
};
constexpr std::array<ByteUnit, 5> kByteUnits = {{{"TiB", int64_t{1} << 40},
                                                 {"GiB", int64_t{1} << 30},
                                                 {"MiB", int64_t{1} << 20},
                                                 {"KiB", int64_t{1} << 10},
                                                 {"", 1}}};

}  // namespace

std::optional<int64_t> ParseBytes(const std::string& text) {
  for (const ByteUnit& unit : kByteUnits) {
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit.suffix)) continue;
    int64_t count = 0;
    const bool valid = absl::SimpleAtoi(number, &count) && count >= 0 &&
                       count <= std::numeric_limits<int64_t>::max() / unit.bytes;
    return valid ? std::optional(count * unit.bytes) : std::nullopt;
  }
  return std::nullopt;
}

std::string FormatBytes(int64_t bytes) {
  for (const ByteUnit& unit : kByteUnits) {
    if (bytes != 0 && bytes % unit.bytes == 0) {
      return absl::StrCat(bytes / unit.bytes, unit.suffix);
    }
  }
  return absl::StrCat(bytes);
}

std::optional<absl::Duration> ParseTime(const std::string& text) {
  absl::Duration time;
  const bool valid = absl::ParseDuration(text, &time) && time < absl::InfiniteDuration() &&
                     time > -absl::InfiniteDuration();
  return valid ? std::optional(time) : std::nullopt;
}

std::optional<int> ParseMode(const std::string& text) {
  int mode = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, mode, 8);
  const bool valid = error == std::errc() && parsed == end && text.size() >= 3 &&
                     text.size() <= 4 && text[0] != '-' && mode <= 0777;
  return valid ? std::optional(mode) : std::nullopt;
}

std::optional<bool> ParseSwitch(const std::string& text) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "off" || text == "no") return false;
  return std::nullopt;
}

}  // namespace phasor
