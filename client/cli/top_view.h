// SPDX-License-Identifier: Apache-2.0
// The text that `phasor top` draws: lines of printable ASCII. Threads: pure functions.
#ifndef PHASOR_CLIENT_CLI_TOP_VIEW_H_
#define PHASOR_CLIENT_CLI_TOP_VIEW_H_

#include <string>

#include "client/cli/top_values.h"

namespace phasor::cli {

// Rates: "0", "4.50", "911.7", "12.3k", "4.10M". All four functions return "-" for NaN.
std::string FormatRate(double per_s);
// "35us", "1.23ms", "12.3s".
std::string FormatSeconds(double s);
// "0 B", "34.0 MiB".
std::string FormatBytes(double bytes);
// "41s", "12m 05s", "3h 07m", "5d 11h".
std::string FormatUptime(double s);

struct FrameSize {
  int width = 80;  // no line is longer; a wider one gives names more room
  int height = 0;  // 0: all methods; otherwise methods are left out first
};

// The picture. Each line ends with a line feed.
std::string FormatTop(const TopValues& values, const std::string& address, FrameSize size);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_TOP_VIEW_H_
