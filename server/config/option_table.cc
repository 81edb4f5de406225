// SPDX-License-Identifier: Apache-2.0
// See option_table.h.
#include "server/config/option_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "server/config/option_values.h"
#include "server/net/listen_address.h"

namespace phasor {
namespace {

using namespace option_kinds;  // NOLINT: all kinds

constexpr char kAllDevices[] = "all";

std::string Accepted(const Bytes& v) {
  return absl::StrCat(v.zero_is_off ? "0, or " : "", FormatBytes(v.min), " to ", FormatBytes(v.max),
                      " (bytes, KiB, MiB, GiB, TiB)");
}
std::string Accepted(const Count& v) { return absl::StrCat(v.min, " to ", v.max); }
std::string Accepted(const Time& v) {
  return absl::StrCat(v.zero_is_off ? "0, or " : "", absl::FormatDuration(v.min), " to ",
                      absl::FormatDuration(v.max), " (ms, s, m, h)");
}
std::string Accepted(const Choice& v) { return absl::StrJoin(v.accepted, ", "); }
std::string Accepted(const Text& v) { return v.accepted; }
std::string Accepted(const Switch&) { return "true, false"; }
std::string Accepted(const Mode&) { return "0000 to 0777, octal"; }
std::string Accepted(const Addresses& v) {
  return absl::StrCat(v.may_be_empty ? "none" : "one", " or more, separated by commas");
}
std::string Accepted(const Devices&) { return "all, or numbers, each once, separated by commas"; }

std::string TextIn(const ServerOptions& o, const Bytes& v) { return FormatBytes(o.*v.field); }
std::string TextIn(const ServerOptions& o, const Count& v) {
  return std::visit([&o](auto field) { return absl::StrCat(o.*field); }, v.field);
}
std::string TextIn(const ServerOptions& o, const Time& v) {
  return absl::FormatDuration(o.*v.field);
}
std::string TextIn(const ServerOptions& o, const Choice& v) { return o.*v.field; }
std::string TextIn(const ServerOptions& o, const Text& v) { return o.*v.field; }
std::string TextIn(const ServerOptions& o, const Switch& v) {
  return o.*v.field ? "true" : "false";
}
std::string TextIn(const ServerOptions& o, const Mode& v) {
  return absl::StrFormat("%04o", o.*v.field);
}
std::string TextIn(const ServerOptions& o, const Addresses& v) {
  return absl::StrJoin(o.*v.field, ",");
}

std::string TextIn(const ServerOptions& o, const Devices& v) {
  return (o.*v.field).empty() ? kAllDevices : absl::StrJoin(o.*v.field, ",");
}

template <typename T>
bool Assign(T* field, const std::optional<T>& value) {
  if (value.has_value()) *field = *value;
  return value.has_value();
}

bool Set(ServerOptions* o, const Bytes& v, const std::string& text) {
  return Assign(&(o->*v.field), ParseBytes(text));
}
bool Set(ServerOptions* o, const Count& v, const std::string& text) {
  return std::visit([&](auto field) { return absl::SimpleAtoi(text, &(o->*field)); }, v.field);
}
bool Set(ServerOptions* o, const Time& v, const std::string& text) {
  return Assign(&(o->*v.field), ParseTime(text));
}
bool Set(ServerOptions* o, const Choice& v, const std::string& text) {
  o->*v.field = text;
  return true;
}
bool Set(ServerOptions* o, const Text& v, const std::string& text) {
  o->*v.field = text;
  return true;
}
bool Set(ServerOptions* o, const Switch& v, const std::string& text) {
  return Assign(&(o->*v.field), ParseSwitch(text));
}
bool Set(ServerOptions* o, const Mode& v, const std::string& text) {
  return Assign(&(o->*v.field), ParseMode(text));
}
bool Set(ServerOptions* o, const Addresses& v, const std::string& text) {
  std::vector<std::string> addresses = absl::StrSplit(text, ',', absl::SkipWhitespace());
  for (std::string& address : addresses) absl::StripAsciiWhitespace(&address);
  o->*v.field = std::move(addresses);
  return true;
}

bool Set(ServerOptions* o, const Devices& v, const std::string& text) {
  std::vector<int> numbers;
  if (text != kAllDevices) {
    for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
      if (!absl::SimpleAtoi(part, &numbers.emplace_back())) return false;
    }
  }
  o->*v.field = std::move(numbers);
  return true;
}

bool InRange(const ServerOptions& o, const Bytes& v) {
  const int64_t bytes = o.*v.field;
  return (v.zero_is_off && bytes == 0) || (bytes >= v.min && bytes <= v.max);
}
bool InRange(const ServerOptions& o, const Count& v) {
  return std::visit([&](auto field) { return o.*field >= v.min && o.*field <= v.max; }, v.field);
}
bool InRange(const ServerOptions& o, const Time& v) {
  const absl::Duration time = o.*v.field;
  return (v.zero_is_off && time == absl::ZeroDuration()) || (time >= v.min && time <= v.max);
}
bool InRange(const ServerOptions& o, const Choice& v) {
  return std::find(v.accepted.begin(), v.accepted.end(), o.*v.field) != v.accepted.end();
}
bool InRange(const ServerOptions&, const Text&) { return true; }
bool InRange(const ServerOptions&, const Switch&) { return true; }
bool InRange(const ServerOptions& o, const Mode& v) {
  return o.*v.field >= 0 && o.*v.field <= 0777;
}
bool InRange(const ServerOptions& o, const Addresses& v) {
  return v.may_be_empty || !(o.*v.field).empty();
}
bool InRange(const ServerOptions& o, const Devices& v) {
  std::vector<int> numbers = o.*v.field;
  std::sort(numbers.begin(), numbers.end());
  const bool twice = std::adjacent_find(numbers.begin(), numbers.end()) != numbers.end();
  return !twice && (numbers.empty() || numbers.front() >= 0);
}

absl::Status NotAccepted(const Option& option, const std::string& text) {
  const Choice* const choice = std::get_if<Choice>(&option.value);
  const std::vector<std::string> names =
      choice == nullptr ? std::vector<std::string>() : choice->accepted;
  return InvalidAt(option.name, "'", text, "' is not accepted", DidYouMean(text, names),
                   " accepted: ", AcceptedBy(option));
}

}  // namespace

const Option* FindOption(const std::string& name) {
  const auto found = std::find_if(Options().begin(), Options().end(),
                                  [&](const Option& option) { return option.name == name; });
  return found == Options().end() ? nullptr : &*found;
}

std::string AcceptedBy(const Option& option) {
  return std::visit([](const auto& v) { return Accepted(v); }, option.value);
}

std::string TextOf(const ServerOptions& options, const Option& option) {
  return std::visit([&](const auto& v) { return TextIn(options, v); }, option.value);
}

std::string FormatOption(const ServerOptions& options, const Option& option) {
  const std::string text = TextOf(options, option);
  const bool may_be_empty =
      std::holds_alternative<Text>(option.value) || std::holds_alternative<Addresses>(option.value);
  return text.empty() && may_be_empty ? "none" : text;
}

absl::Status SetOption(const std::string& text, const Option& option, ServerOptions* options) {
  const bool valid = std::visit([&](const auto& v) { return Set(options, v, text); }, option.value);
  return valid ? absl::OkStatus() : NotAccepted(option, text);
}

absl::Status CheckOption(const ServerOptions& options, const Option& option) {
  const bool valid = std::visit([&](const auto& v) { return InRange(options, v); }, option.value);
  if (!valid) return NotAccepted(option, FormatOption(options, option));
  if (const auto* const addresses = std::get_if<Addresses>(&option.value)) {
    for (const std::string& address : options.*addresses->field) {
      PHASOR_RETURN_IF_ERROR(ParseListenAddress(address, option.name).status());
    }
  }
  return absl::OkStatus();
}

std::string VariableOf(const std::string& name) {
  return "PHASOR_" + absl::AsciiStrToUpper(absl::StrReplaceAll(name, {{"-", "_"}}));
}

}  // namespace phasor
