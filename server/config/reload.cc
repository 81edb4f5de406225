// SPDX-License-Identifier: Apache-2.0
// Compares the options of a running server with new ones, and takes over those that may change.
#include "server/config/reload.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "server/config/option_table.h"

namespace phasor {
namespace {

std::map<std::string, Spec> ByName(const std::vector<NamedSpec>& encoders) {
  std::map<std::string, Spec> specs;
  for (const NamedSpec& encoder : encoders) specs.emplace(encoder.name, encoder.spec);
  return specs;
}

// Takes over one option. Returns whether it now has its new value.
bool TakeOver(const Option& option, const ServerOptions& next, ServerOptions* current) {
  return option.reload == Reload::kTakesEffect &&
         SetOption(TextOf(next, option), option, current).ok();
}

void ReportEncoders(const std::vector<NamedSpec>& from, const std::vector<NamedSpec>& to,
                    std::vector<std::string>* changed) {
  const auto old_specs = ByName(from);
  const auto new_specs = ByName(to);
  std::set<std::string> names;
  for (const auto& [name, spec] : old_specs) names.insert(name);
  for (const auto& [name, spec] : new_specs) names.insert(name);
  for (const std::string& name : names) {
    const auto before = old_specs.find(name);
    const auto after = new_specs.find(name);
    const char* const what = before == old_specs.end()            ? "added"
                             : after == new_specs.end()           ? "removed"
                             : !(before->second == after->second) ? "changed"
                                                                  : nullptr;
    if (what != nullptr) changed->push_back(absl::StrCat("encoders.", name, ": ", what));
  }
}

}  // namespace

ReloadReport TakeOver(const ServerOptions& next, ServerOptions* current) {
  ReloadReport report;
  for (const Option& option : Options()) {
    const std::string before = FormatOption(*current, option);
    const std::string after = FormatOption(next, option);
    if (before == after) continue;
    const bool taken = TakeOver(option, next, current);
    std::vector<std::string>& entries = taken ? report.changed : report.needs_restart;
    entries.push_back(absl::StrCat(option.name, ": ", before, " -> ", after));
  }
  ReportEncoders(current->encoders, next.encoders, &report.changed);
  current->encoders = next.encoders;
  return report;
}

}  // namespace phasor
