// SPDX-License-Identifier: Apache-2.0
// Formats lines and hands each to the kernel in one write.
#include "server/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

namespace phasor {
namespace {

constexpr std::array<const char*, 5> kLevelNames = {"debug", "info", "warn", "error", "off"};

std::atomic<LogLevel> minimum_level = LogLevel::kInfo;

// Length of the UTF-8 sequence at the beginning of `text`; 0 when it is none.
size_t Utf8Length(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80                       ? 1
                        : byte(0) >= 0xC2 && byte(0) < 0xE0  ? 2
                        : byte(0) >= 0xE0 && byte(0) < 0xF0  ? 3
                        : byte(0) >= 0xF0 && byte(0) <= 0xF4 ? 4
                                                             : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xF0 && byte(1) < 0x90);
  const bool beyond = (byte(0) == 0xED && byte(1) >= 0xA0) || (byte(0) == 0xF4 && byte(1) >= 0x90);
  return overlong || beyond ? 0 : length;
}

// Appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
void AppendString(std::string* out, std::string_view text) {
  out->push_back('"');
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) {
      out->append("\\ufffd");
    } else if (text[0] == '"' || text[0] == '\\') {
      out->push_back('\\');
      out->push_back(text[0]);
    } else if (static_cast<unsigned char>(text[0]) < 0x20 || text[0] == 0x7F) {
      absl::StrAppendFormat(out, "\\u%04x", text[0]);
    } else {
      out->append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out->push_back('"');
}

void AppendValue(std::string* out, const std::string& value) { AppendString(out, value); }
void AppendValue(std::string* out, int64_t value) { absl::StrAppend(out, value); }
void AppendValue(std::string* out, bool value) { out->append(value ? "true" : "false"); }
void AppendValue(std::string* out, double value) {
  if (std::isfinite(value)) {
    absl::StrAppendFormat(out, "%.9g", value);
  } else {
    out->append("null");
  }
}
void AppendValue(std::string* out, const std::vector<std::string>& values) {
  out->push_back('[');
  for (const std::string& value : values) {
    if (out->back() != '[') out->push_back(',');
    AppendString(out, value);
  }
  out->push_back(']');
}

}  // namespace

void SetLogLevel(LogLevel level) { minimum_level.store(level, std::memory_order_relaxed); }

LogLevel LogLevelOf(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return LogLevel::kInfo;
}

std::string LogLine(absl::Time time, LogLevel level, std::string_view event,
                    std::initializer_list<LogField> fields) {
  std::string line = absl::StrCat(
      "{\"time\":\"", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone()),
      "\",\"level\":\"", kLevelNames[static_cast<size_t>(level)], "\",\"event\":");
  AppendString(&line, event);
  for (const LogField& field : fields) {
    line.push_back(',');
    AppendString(&line, field.key);
    line.push_back(':');
    std::visit([&line](const auto& value) { AppendValue(&line, value); }, field.value);
  }
  line.push_back('}');
  return line;
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < minimum_level.load(std::memory_order_relaxed)) return;
  const std::string line = LogLine(absl::Now(), level, event, fields) + "\n";
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  static_cast<void>(written);  // nobody to tell
}

}  // namespace phasor
