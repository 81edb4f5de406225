// SPDX-License-Identifier: Apache-2.0
// Lays out the lines of `phasor top` and formats its numbers.
#include "client/cli/top_view.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "kernels/base/text.h"

namespace phasor::cli {
namespace {

using Lines = std::vector<std::string>;

// Three digits, with as many of them after the point as fit.
std::string ThreeDigits(double value) {
  return absl::StrFormat(value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f", value);
}

std::string FormatMebibytes(double bytes) {
  return std::isnan(bytes) ? "-" : ThreeDigits(bytes / (1 << 20));
}

std::string FormatCount(double count) {
  return std::isnan(count) ? "-" : absl::StrFormat("%.0f", count);
}

std::string FormatPercent(double percent) {
  return std::isnan(percent) ? "-" : absl::StrFormat("%.1f %%", percent);
}

// At most `width` characters of a server's text. Other than printable ASCII is replaced, because
// terminals obey control characters.
std::string Shown(const std::string& text, size_t width) {
  std::string shown = text.substr(0, width);
  for (char& c : shown) {
    if (!absl::ascii_isprint(c)) c = '?';
  }
  if (text.size() > width && width > 0) shown.back() = '~';
  return shown;
}

std::string HeaderText(const TopValues& v, const std::string& address) {
  return absl::StrFormat("phasor %s  %s %s  %s  up %s%s  %s", v.version, v.backend, v.cpu_target,
                         v.serving ? "SERVING" : "NOT SERVING", FormatUptime(v.uptime_s),
                         v.restarted ? ", started again" : "", address);
}

std::string ProcessText(const TopValues& v) {
  return absl::StrFormat("processor %s   resident %s   files open %s of %s",
                         FormatPercent(v.cpu_percent), FormatBytes(v.resident_bytes),
                         FormatCount(v.open_fds), FormatCount(v.max_fds));
}

std::string InflightText(const TopValues& v) {
  constexpr int kBar = 20;
  const double part = v.inflight_bytes / v.inflight_limit_bytes;
  const int filled = part > 0 ? static_cast<int>(std::lround(kBar * std::min(part, 1.0))) : 0;
  return absl::StrFormat("in flight %10s of %10s  [%s%s] %s", FormatBytes(v.inflight_bytes),
                         FormatBytes(v.inflight_limit_bytes), std::string(filled, '#'),
                         std::string(kBar - filled, '.'), FormatPercent(100 * part));
}

void AddTotals(const TopValues& v, Lines* lines) {
  lines->push_back(
      absl::StrFormat("calls/s  %8s   received %7s MiB/s   queued  %6s   connections %6s",
                      FormatRate(v.calls_per_s), FormatMebibytes(v.received_bytes_per_s),
                      FormatCount(v.queued_calls), FormatCount(v.connections)));
  lines->push_back(
      absl::StrFormat("errors/s %8s   sent     %7s MiB/s   waiting %6s   refused/s   %6s",
                      FormatRate(v.errors_per_s), FormatMebibytes(v.sent_bytes_per_s),
                      FormatCount(v.waiting_calls), FormatRate(v.connections_refused_per_s)));
  lines->push_back(InflightText(v));
}

// Widths of the columns for names and codes. Numbers take 50 columns of a line. If there is more
// room, codes get wider before names do.
struct MethodColumns {
  explicit MethodColumns(int width)
      : code(std::clamp(width - 50 - 18, 12, 19)), name(std::max(width - 50 - code, 8)) {}
  int code;
  int name;
};

std::string MethodText(const MethodValues& m, MethodColumns columns) {
  return absl::StrFormat(
      "%-*s %7s %8s %-*s %6s %6s %8s %8s", columns.name, Shown(m.name, columns.name),
      FormatRate(m.calls_per_s), FormatRate(m.errors_per_s), columns.code,
      Shown(m.most_frequent_error, columns.code), FormatSeconds(m.duration.p50_s),
      FormatSeconds(m.duration.p99_s), FormatMebibytes(m.received_bytes_per_s),
      FormatMebibytes(m.sent_bytes_per_s));
}

// Adds at most `most` > 0 lines, and the header.
void AddMethods(const TopValues& v, int width, size_t most, Lines* lines) {
  const MethodColumns columns(width);
  lines->push_back(absl::StrFormat("%-*s %7s %8s %-*s %6s %6s %8s %8s", columns.name, "METHOD",
                                   "CALLS/S", "ERRORS/S", columns.code, "MOST OFTEN", "P50", "P99",
                                   "MiB/s IN", "OUT"));
  const size_t methods = v.methods.size();
  const bool all = methods <= most;
  const size_t shown = all ? methods : std::max<size_t>(most - 1, 1);
  for (size_t i = 0; i < shown; ++i) {
    lines->push_back(MethodText(v.methods[i], columns));
  }
  if (!all && shown < most) lines->push_back(absl::StrFormat("and %d more", methods - shown));
  if (methods == 0) lines->push_back("no calls yet");
}

std::string StageText(const char* name, const Percentiles& stage, const char* holding_name,
                      const HoldingValues& holding) {
  return absl::StrFormat("%-8s %8s %8s       %-8s %8s %12s", name, FormatSeconds(stage.p50_s),
                         FormatSeconds(stage.p99_s), holding_name, FormatCount(holding.count),
                         FormatBytes(holding.bytes));
}

Lines StageLines(const TopValues& v) {
  return {
      absl::StrFormat("%-8s %8s %8s       %-8s %8s %12s", "STAGE", "P50", "P99", "MEMORY", "COUNT",
                      "BYTES"),
      StageText("queue", v.queue, "leases", v.leases),
      StageText("gather", v.gather, "regions", v.regions),
      StageText("compute", v.compute, "tables", v.tables),
      absl::StrFormat("calls per batch %s   inline %s   queued %s   plan cache hits %s",
                      FormatRate(v.calls_per_batch), FormatPercent(v.inline_percent),
                      FormatPercent(v.queued_percent), FormatPercent(v.plan_cache_hit_percent))};
}

}  // namespace

std::string FormatRate(double per_s) {
  if (std::isnan(per_s)) return "-";
  if (per_s == 0) return "0";
  if (per_s < 999.95) return absl::StrFormat(per_s < 9.995 ? "%.2f" : "%.1f", per_s);
  return per_s < 999.5e3 ? ThreeDigits(per_s / 1e3) + "k" : ThreeDigits(per_s / 1e6) + "M";
}

std::string FormatSeconds(double s) {
  if (std::isnan(s)) return "-";
  if (s < 999.5e-6) return absl::StrFormat("%.0fus", s * 1e6);
  return s < 999.5e-3 ? ThreeDigits(s * 1e3) + "ms" : ThreeDigits(s) + "s";
}

std::string FormatBytes(double bytes) {
  if (std::isnan(bytes)) return "-";
  if (bytes < 1023.5) return absl::StrFormat("%.0f B", bytes);
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (bytes /= 1024; bytes >= 1023.5 && unit + 1 < std::size(units); bytes /= 1024) ++unit;
  return StrCat(ThreeDigits(bytes), " ", units[unit]);
}

std::string FormatUptime(double s) {
  if (std::isnan(s)) return "-";
  constexpr double kMost = 1e10;  // centuries
  const auto seconds = static_cast<int64_t>(std::clamp(s, 0.0, kMost));
  const int64_t minutes = seconds / 60;
  const int64_t hours = minutes / 60;
  if (minutes == 0) return absl::StrFormat("%ds", seconds);
  if (hours == 0) return absl::StrFormat("%dm %02ds", minutes, seconds % 60);
  if (hours < 24) return absl::StrFormat("%dh %02dm", hours, minutes % 60);
  return absl::StrFormat("%dd %02dh", hours / 24, hours % 24);
}

std::string FormatTop(const TopValues& values, const std::string& address, FrameSize size) {
  Lines lines = {HeaderText(values, address), ProcessText(values), ""};
  AddTotals(values, &lines);
  lines.emplace_back();
  const Lines end = StageLines(values);
  // Lines other than methods: the methods' header and the empty line after them count too.
  const auto other_lines = static_cast<int64_t>(lines.size() + end.size() + 2);
  const size_t most_methods =
      size.height == 0 ? values.methods.size()
                       : static_cast<size_t>(std::max<int64_t>(size.height - other_lines, 1));
  AddMethods(values, size.width, most_methods, &lines);
  lines.emplace_back();
  lines.insert(lines.end(), end.begin(), end.end());
  if (size.height > 0 && lines.size() > static_cast<size_t>(size.height)) {
    lines.resize(size.height);
  }
  std::string text;
  for (const std::string& line : lines) text += Shown(line, size.width) + "\n";
  return text;
}

}  // namespace phasor::cli
