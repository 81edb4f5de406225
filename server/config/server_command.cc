// SPDX-License-Identifier: Apache-2.0
// Reads every source, then sets each option from the first that has it.
#include "server/config/server_command.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "kernels/nearest_name.h"
#include "kernels/status_macros.h"
#include "server/option_table.h"

namespace phasor {
namespace {

// The option called `name`; '_' is as good as '-'.
absl::StatusOr<const Option*> OptionCalled(const std::string& name) {
  const std::string canonical = absl::StrReplaceAll(name, {{"_", "-"}});
  if (const Option* option = FindOption(canonical)) return option;
  std::vector<std::string> names;
  for (const Option& option : Options()) names.push_back(option.name);
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": unknown option, did you mean ", NearestName(canonical, names), "?"));
}

// Texts of options by name, from one source.
using Texts = std::map<std::string, std::string>;

struct Flags {
  Texts texts;
  std::string config;
  bool help = false;
  bool version = false;
};

// A flag given several times is a list.
void Append(Texts* texts, const std::string& name, const std::string& text) {
  const auto [entry, is_new] = texts->emplace(name, text);
  if (!is_new) absl::StrAppend(&entry->second, ",", text);
}

absl::StatusOr<Flags> ReadFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (!absl::StartsWith(argument, "--")) {
      return absl::InvalidArgumentError(
          absl::StrCat(argument, ": not a flag, accepted: --name=value, --name value"));
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (name == "help" || name == "version") {
      (name == "help" ? flags.help : flags.version) = true;
      continue;
    }
    const Option* option = nullptr;
    if (name != "config") {
      PHASOR_ASSIGN_OR_RETURN(option, OptionCalled(name));
    }
    std::string text;
    if (equals != std::string::npos) {
      text = argument.substr(equals + 1);
    } else if (option != nullptr && std::holds_alternative<option_kinds::Switch>(option->value)) {
      text = "true";
    } else if (i + 1 < arguments.size()) {
      text = arguments[++i];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": no value, accepted: --", name, "=value"));
    }
    if (option == nullptr) {
      flags.config = text;
    } else {
      Append(&flags.texts, option->name, text);
    }
  }
  return flags;
}

// Lines `name = value`; # begins a comment, quotes around a value are dropped.
absl::StatusOr<Texts> ReadConfig(const std::string& path) {
  std::ifstream file(path);
  // A stream opens directories, and reads nothing of them.
  if (!file || std::filesystem::is_directory(path)) {
    return absl::NotFoundError(absl::StrCat("config: cannot read '", path, "'"));
  }
  Texts texts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string where = absl::StrCat(path, ":", number, ": ");
    const std::string entry(absl::StripAsciiWhitespace(line.substr(0, line.find('#'))));
    if (entry.empty()) continue;
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(where, "no '=', accepted: name = value"));
    }
    const absl::StatusOr<const Option*> option =
        OptionCalled(std::string(absl::StripAsciiWhitespace(entry.substr(0, equals))));
    if (!option.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(where, option.status().message()));
    }
    std::string text(absl::StripAsciiWhitespace(entry.substr(equals + 1)));
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
      text = text.substr(1, text.size() - 2);
    }
    Append(&texts, (*option)->name, text);
  }
  return texts;
}

std::string Version() { return "phasor-server " PHASOR_VERSION "\n"; }

}  // namespace

absl::StatusOr<ServerCommand> ParseServerCommand(const std::vector<std::string>& arguments,
                                                 const GetEnvironment& environment) {
  ServerCommand command;
  PHASOR_ASSIGN_OR_RETURN(const Flags flags, ReadFlags(arguments));
  if (flags.help || flags.version) {
    command.print = flags.help ? ServerHelp() : Version();
    return command;
  }
  Texts config;
  const std::string path =
      flags.config.empty() ? environment(VariableOf("config")).value_or("") : flags.config;
  if (!path.empty()) {
    PHASOR_ASSIGN_OR_RETURN(config, ReadConfig(path));
  }
  for (const Option& option : Options()) {
    std::optional<std::string> text;
    if (const auto flag = flags.texts.find(option.name); flag != flags.texts.end()) {
      text = flag->second;
    } else if (const auto variable = environment(VariableOf(option.name)).value_or("");
               !variable.empty()) {
      text = variable;
    } else if (const auto line = config.find(option.name); line != config.end()) {
      text = line->second;
    }
    if (!text.has_value()) continue;
    PHASOR_RETURN_IF_ERROR(SetOption(*text, option, &command.options));
  }
  PHASOR_RETURN_IF_ERROR(command.options.Validate());
  return command;
}

std::string ServerHelp() {
  std::string help =
      "phasor-server: computes position embeddings and rotary embeddings over gRPC.\n\n"
      "  --config FILE\n      lines of `name = value`, names as below without --\n"
      "  --help, --version\n";
  const ServerOptions defaults;
  for (const Option& option : Options()) {
    absl::StrAppendFormat(&help, "  --%s  (%s)\n      %s\n      default %s; accepted: %s\n",
                          option.name, VariableOf(option.name), option.help,
                          FormatOption(defaults, option), AcceptedBy(option));
  }
  absl::StrAppend(&help,
                  "\nA flag wins over the environment variable beside it, which wins over the "
                  "config file.\nExit status: 0 stopped in order, 1 could not start or drain, 2 "
                  "bad options.\n");
  return help;
}

}  // namespace phasor
