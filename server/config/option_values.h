// SPDX-License-Identifier: Apache-2.0
// The text form of option values: sizes, durations, permissions, switches.
#ifndef PHASOR_SERVER_CONFIG_OPTION_VALUES_H_
#define PHASOR_SERVER_CONFIG_OPTION_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace phasor {

// Parses "1024", "64KiB", "4MiB", "2GiB", "1TiB". nullopt: not such a size, or it overflows.
std::optional<int64_t> ParseBytes(const std::string& text);
// The shortest such text that is exact.
std::string FormatBytes(int64_t bytes);

// Parses "250ms", "10s", "1h30m", "0". nullopt: not a finite duration.
std::optional<absl::Duration> ParseTime(const std::string& text);

// Parses permissions of a file: three or four octal digits, "660" or "0660". nullopt: another text.
std::optional<int> ParseMode(const std::string& text);

// Parses "true", "false", "1", "0", "on", "off", "yes", "no". nullopt: another text.
std::optional<bool> ParseSwitch(const std::string& text);

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_OPTION_VALUES_H_
