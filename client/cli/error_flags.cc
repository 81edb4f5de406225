// SPDX-License-Identifier: Apache-2.0
// Takes field paths apart and finds the flags that set their fields.
#include "client/cli/error_flags.h"

#include <algorithm>
#include <utility>

#include "client/cli/spec_flags.h"
#include "kernels/base/text.h"

namespace phasor::cli {
namespace {

bool IsOfPath(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '[' ||
         c == ']';
}

using Names = std::pair<std::string_view, std::string_view>;  // of a field and its flag

constexpr Names kClientOptions[] = {{"channels", "channels"},     {"inproc_threads", "threads"},
                                    {"max_attempts", "attempts"}, {"target", "server"},
                                    {"tls.ca_file", "ca"},        {"tls.cert_file", "cert"},
                                    {"tls.key_file", "key"},      {"token_file", "token-file"}};

// Messages of which fields have flags of their own.
constexpr std::string_view kMessages[] = {"item", "specs[0]", "spec", "layouts[0]",
                                          "parity_comparison"};

// Their fields whose flags have other names.
constexpr Names kOtherNames[] = {
    {"config_json", "config"}, {"groups[0]", "run"}, {"groups[0].runs", "run"},
    {"name", "layout"},        {"output", "form"},   {"out_of_range", "clip"},
    {"pools", "input"},        {"tensors", "input"}, {"table_values", "table-file"}};

constexpr std::string_view kPositions = "positions";  // after "", "from_", "query_" or "key_"

// Parts of a path that no flag shows.
constexpr std::string_view kHidden[] = {".tensor", ".range", ".grid"};

// Removes `start` from the start of `text`, and says whether it was there.
bool Consume(std::string_view* text, std::string_view start) {
  if (!text->starts_with(start)) return false;
  text->remove_prefix(start.size());
  return true;
}

bool IsGiven(const CLI::App& command, const std::string& flag) {
  const CLI::Option* const option = command.get_option_no_throw(flag);
  return option != nullptr && option->count() > 0;
}

// The flag of a field; empty if there is none.
std::string FlagOf(const CLI::App& command, std::string_view field) {
  if (field.ends_with(kPositions)) {
    const std::string_view prefix = field.substr(0, field.size() - kPositions.size());
    for (const std::string_view kind : {"range", "positions-file"}) {
      const std::string flag = StrCat("--", FlagName(prefix), kind);
      if (IsGiven(command, flag)) return flag;
    }
  }
  for (const auto& [from, to] : kOtherNames) {
    if (field != from) continue;
    const std::string flag = StrCat("--", to);
    if (command.get_option_no_throw(flag) != nullptr) return flag;
  }
  const std::string flag = StrCat("--", FlagName(field));
  return command.get_option_no_throw(flag) == nullptr ? "" : flag;
}

}  // namespace

std::string WithFlag(const CLI::App& command, std::string_view message) {
  const auto end = std::find_if_not(message.begin(), message.end(), IsOfPath);
  std::string_view path = message.substr(0, static_cast<size_t>(end - message.begin()));
  const std::string_view text = message.substr(path.size());
  if (!text.starts_with(": ")) return std::string(message);
  for (const auto& [option, name] : kClientOptions) {
    const std::string flag = StrCat("--", name);
    if (path == option && command.get_option_no_throw(flag) != nullptr) return StrCat(flag, text);
  }
  bool of_call = false;
  bool of_spec = false;
  for (const std::string_view outer : kMessages) {
    if (!Consume(&path, StrCat(outer, "."))) continue;
    of_call = true;
    of_spec |= outer.starts_with("spec");
  }
  if (!of_call) return std::string(message);
  // A tensor's own fields have flags too.
  if (const size_t dot = path.rfind("]."); path.starts_with("tensors[") && dot != path.npos) {
    const std::string flag = FlagOf(command, path.substr(dot + 2));
    if (!flag.empty()) return StrCat(flag, text);
  }
  // The longest beginning that has a flag.
  for (size_t length = path.size(); length != path.npos && length > 0;
       length = path.find_last_of(".[", length - 1)) {
    const std::string flag = FlagOf(command, path.substr(0, length));
    if (flag.empty()) continue;
    // The value is from the file.
    if (of_spec && IsGiven(command, "--spec") && !IsGiven(command, flag)) break;
    std::string_view rest = path.substr(length);
    std::string_view index;
    if (rest.starts_with("[")) index = rest.substr(0, rest.find(']') + 1);
    rest.remove_prefix(index.size());
    if (command.get_option(flag)->count() < 2 && index == "[0]") index = "";
    for (const std::string_view hidden : kHidden) Consume(&rest, hidden);
    return StrCat(flag, index, rest, text);
  }
  return std::string(message);
}

}  // namespace phasor::cli
