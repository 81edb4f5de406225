// SPDX-License-Identifier: Apache-2.0
// How option values are written: sizes, durations, switches.
#ifndef PHASOR_SERVER_CONFIG_OPTION_VALUES_H_
#define PHASOR_SERVER_CONFIG_OPTION_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace phasor {

// "1024", "64KiB", "4MiB", "2GiB", "1TiB". Nothing when `text` is not such a size or overflows.
std::optional<int64_t> ParseBytes(const std::string& text);
// The shortest exact form of the above.
std::string FormatBytes(int64_t bytes);

// "250ms", "10s", "1h30m", "0". Nothing when `text` is not a finite duration.
std::optional<absl::Duration> ParseTime(const std::string& text);
std::string FormatTime(absl::Duration time);

// "true", "false", "1", "0", "on", "off", "yes", "no".
std::optional<bool> ParseSwitch(const std::string& text);

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_OPTION_VALUES_H_
