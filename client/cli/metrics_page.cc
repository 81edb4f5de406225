// SPDX-License-Identifier: Apache-2.0
// Parses Prometheus' text format.
#include "client/cli/metrics_page.h"

#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/escaping.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor::cli {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// `text` for an error message, cut, and without the control characters of a foreign page, which a
// terminal would obey.
std::string Shown(std::string_view text) {
  constexpr size_t kMost = 40;
  return absl::CHexEscape(std::string(text.substr(0, kMost)));
}

// Reads the parts of one sample's line from left to right. The caller adds the line number to
// errors.
class SampleReader {
 public:
  explicit SampleReader(std::string_view line) : rest_(line) {}

  absl::StatusOr<std::string> Name() { return Word("name of a metric", /*colons=*/true); }

  absl::StatusOr<Labels> LabelsInBraces() {
    Labels labels;
    SkipBlanks();
    if (!Take('{')) return labels;
    for (SkipBlanks(); !Take('}'); SkipBlanks()) {
      PHASOR_ASSIGN_OR_RETURN(std::string name, Word("name of a label", /*colons=*/false));
      SkipBlanks();
      if (!Take('=')) return Invalid("no = after label ", name, "; must be ", name, "=\"value\"");
      SkipBlanks();
      PHASOR_ASSIGN_OR_RETURN(std::string value, Quoted());
      SkipBlanks();
      if (!Take(',') && !rest_.starts_with('}')) {
        return Invalid("labels go on after ", name, "; must be a comma or }");
      }
      if (!labels.emplace(name, std::move(value)).second) {
        return Invalid("label ", name, " is there twice; must be once");
      }
    }
    return labels;
  }

  // Reads the value, and the time stamp if one follows.
  absl::StatusOr<double> Value() {
    const std::string_view text = Token();
    // C++ reads all forms but a leading plus sign.
    const std::string_view number =
        text.starts_with('+') && !text.starts_with("+-") ? text.substr(1) : text;
    double value = 0;
    const absl::from_chars_result read =
        absl::from_chars(number.data(), number.data() + number.size(), value);
    if (number.empty() || read.ec == std::errc::invalid_argument ||
        read.ptr != number.data() + number.size()) {
      return Invalid("value \"", Shown(text), "\"; must be a number, +Inf, -Inf or NaN");
    }
    const std::string_view time = Token();
    int64_t milliseconds = 0;
    const char* const time_end = time.data() + time.size();
    if (!time.empty() && std::from_chars(time.data(), time_end, milliseconds).ptr != time_end) {
      return Invalid("time \"", Shown(time), "\"; must be whole milliseconds");
    }
    SkipBlanks();
    if (!rest_.empty()) return Invalid("\"", Shown(rest_), "\" after the time; must be nothing");
    return value;
  }

 private:
  void SkipBlanks() {
    while (!rest_.empty() && IsBlank(rest_.front())) rest_.remove_prefix(1);
  }

  bool Take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::string_view Token() {
    SkipBlanks();
    size_t size = 0;
    while (size < rest_.size() && !IsBlank(rest_[size])) ++size;
    const std::string_view token = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return token;
  }

  absl::StatusOr<std::string> Word(std::string_view what, bool colons) {
    SkipBlanks();
    size_t size = 0;
    while (size < rest_.size() &&
           (absl::ascii_isalpha(rest_[size]) || rest_[size] == '_' ||
            (colons && rest_[size] == ':') || (size > 0 && absl::ascii_isdigit(rest_[size])))) {
      ++size;
    }
    if (size == 0) {
      return Invalid("\"", Shown(rest_), "\"; must be the ", what, ": letters, digits and _");
    }
    std::string word(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return word;
  }

  absl::StatusOr<std::string> Quoted() {
    if (!Take('"')) return Invalid("\"", Shown(rest_), "\"; must be a value in double quotes");
    std::string value;
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return value;
      if (c != '\\') {
        value += c;
        continue;
      }
      if (Take('n')) {
        value += '\n';
      } else if (rest_.starts_with('\\') || rest_.starts_with('"')) {
        value += rest_.front();
        rest_.remove_prefix(1);
      } else {
        return Invalid("escape \\", Shown(rest_.substr(0, 1)), "; must be \\\\, \\\" or \\n");
      }
    }
    return Invalid("a label's value does not end; must end with a double quote");
  }

  std::string_view rest_;
};

absl::Status ReadLine(std::string_view line, std::map<std::string, Series, std::less<>>* all) {
  while (!line.empty() && IsBlank(line.front())) line.remove_prefix(1);
  if (line.empty() || line.front() == '#') return absl::OkStatus();
  SampleReader reader(line);
  PHASOR_ASSIGN_OR_RETURN(const std::string name, reader.Name());
  PHASOR_ASSIGN_OR_RETURN(Labels labels, reader.LabelsInBraces());
  PHASOR_ASSIGN_OR_RETURN(const double value, reader.Value());
  if (!(*all)[name].emplace(std::move(labels), value).second) {
    return Invalid(name, " with these labels is there twice; must be once");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MetricsPage> MetricsPage::Parse(std::string_view text) {
  MetricsPage page;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t size = text.find('\n');
    // A page that was cut off could end in a wrong number: "19" of "1915".
    if (size == std::string_view::npos) {
      return Invalid("line ", number, ": does not end; must end with a line feed");
    }
    if (const absl::Status read = ReadLine(text.substr(0, size), &page.series_); !read.ok()) {
      return Invalid("line ", number, ": ", read.message());
    }
    text.remove_prefix(size + 1);
  }
  return page;
}

const Series& MetricsPage::Of(std::string_view name) const {
  static const Series none;
  const auto found = series_.find(name);
  return found == series_.end() ? none : found->second;
}

}  // namespace phasor::cli
