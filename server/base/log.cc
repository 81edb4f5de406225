// SPDX-License-Identifier: Apache-2.0
// Formats log lines and writes each with one system call.
#include "server/base/log.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace phasor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 5> kLevelNames = {"debug", "info", "warn", "error", "off"};

std::atomic<LogLevel> minimum_level = LogLevel::kInfo;

// Whether standard error accepts a line now. A pipe is writable when it has room for 4 KiB, so a
// longer line may still block.
bool HasRoom() {
  pollfd out = {STDERR_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0;
}

// Writes lines. Calls must not wait for the reader of the log, so a line without room, in a pipe or
// on the disk, is lost, and the next line that has room says how many were. Threads: one at a time.
class Writer {
 public:
  void Write(const std::string& line) {
    if (lost_ > 0 &&
        Put(absl::StrCat(
            torn_ ? "\n" : "",
            LogLine(absl::Now(), LogLevel::kWarn, "log lines lost", {{"lines", lost_}}), "\n"))) {
      lost_ = 0;
      torn_ = false;
    }
    if (lost_ > 0 || !Put(line)) ++lost_;
  }

 private:
  bool Put(const std::string& text) {
    if (!HasRoom()) return false;
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    torn_ = torn_ || (written > 0 && written < static_cast<ssize_t>(text.size()));
    return written == static_cast<ssize_t>(text.size());
  }

  int64_t lost_ = 0;
  bool torn_ = false;  // what was written last does not end with its line
};

void Write(const std::string& line) {
  static std::mutex mutex;
  static Writer writer;
  const std::lock_guard lock(mutex);
  writer.Write(line);
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
  Json line;
  line["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
  line["level"] = kLevelNames[static_cast<size_t>(level)];
  line["event"] = event;
  for (const LogField& field : fields) {
    std::visit([&](const auto& value) { line[std::string(field.key)] = value; }, field.value);
  }
  // Bytes that are not UTF-8 become U+FFFD. Numbers that JSON cannot express become null.
  return line.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < minimum_level.load(std::memory_order_relaxed)) return;
  Write(LogLine(absl::Now(), level, event, fields) + "\n");
}

}  // namespace phasor
