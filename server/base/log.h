// SPDX-License-Identifier: Apache-2.0
// Logs: one JSON object per line on standard error.
#ifndef PHASOR_SERVER_BASE_LOG_H_
#define PHASOR_SERVER_BASE_LOG_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"

namespace phasor {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError, kOff };

using LogValue = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;
struct LogField {
  std::string_view key;
  LogValue value;
};

// Writes {"time":...,"level":...,"event":...,fields...} as one line, if `level` is enabled. Never
// blocks: lines without room are lost and counted. Threads: any; lines do not mix.
void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

// From now on, lines below `level` are not written. The first level is kInfo.
void SetLogLevel(LogLevel level);
// The level that a value of --log-level names; kInfo for unknown names.
LogLevel LogLevelOf(std::string_view name);

// The line that Log writes, without the line feed.
std::string LogLine(absl::Time time, LogLevel level, std::string_view event,
                    std::initializer_list<LogField> fields);

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_LOG_H_
