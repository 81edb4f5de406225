// SPDX-License-Identifier: Apache-2.0
// Reads flags, environment and file, and sets each option from the first of them that has it.
#include "server/config/server_command.h"

#include <map>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/spec/spec.h"
#include "server/config/config_file.h"
#include "server/config/option_table.h"
#include "server/config/option_values.h"

namespace phasor {
namespace {

// The option with this name; '_' and '-' are the same.
absl::StatusOr<const Option*> OptionCalled(const std::string& name) {
  const std::string canonical = absl::StrReplaceAll(name, {{"_", "-"}});
  if (const Option* option = FindOption(canonical)) return option;
  std::vector<std::string> names = {"config", "help", "version", "check-config", "print-config"};
  for (const Option& option : Options()) names.push_back(option.name);
  return InvalidAt(name, "unknown option; did you mean ", NearestName(canonical, names), "?");
}

// A variable whose name is this many edits from an option's is reported as a misspelling.
constexpr size_t kSuspectEdits = 2;

// The texts of one source, by option.
using Texts = std::map<std::string, std::string>;

// The parsed command line: texts of options, and flags that say what to do with them.
struct Flags {
  Texts texts;
  std::optional<std::string> config;
  bool help = false;
  bool version = false;
  bool check_config = false;
  bool print_config = false;
};

// The member that a flag without a value sets; nullptr if it is not such a flag.
bool* ActionOf(const std::string& name, Flags* flags) {
  if (name == "help") return &flags->help;
  if (name == "version") return &flags->version;
  if (name == "check-config") return &flags->check_config;
  if (name == "print-config") return &flags->print_config;
  return nullptr;
}

// Adds a text. A flag that is given several times makes a list, where the option is one.
absl::Status Append(const Option& option, const std::string& text, Texts* texts) {
  const auto [entry, is_new] = texts->emplace(option.name, text);
  if (is_new) return absl::OkStatus();
  if (!std::holds_alternative<option_kinds::Addresses>(option.value) &&
      !std::holds_alternative<option_kinds::Devices>(option.value)) {
    return InvalidAt(option.name, "given twice ('", entry->second, "' and '", text,
                     "'); must be once");
  }
  absl::StrAppend(&entry->second, ",", text);
  return absl::OkStatus();
}

absl::StatusOr<Flags> ReadFlags(const std::vector<std::string>& arguments) {
  Flags flags;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument = arguments[i] == "-h" ? "--help" : arguments[i];
    if (!absl::StartsWith(argument, "--")) {
      return InvalidAt(argument,
                       "not a flag; accepted: --name=value, --name value; of switches: --name, "
                       "--name=value");
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    if (bool* const action = ActionOf(name, &flags)) {
      const std::string value = equals == std::string::npos ? "true" : argument.substr(equals + 1);
      const std::optional<bool> on = ParseSwitch(value);
      if (!on.has_value()) {
        return InvalidAt(name, "'", value, "' is not accepted; accepted: true, false");
      }
      *action = *on;
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
      return InvalidAt(name, "no value; accepted: --", name, "=value");
    }
    if (option == nullptr) {
      if (flags.config.has_value()) {
        return Invalid("config: given twice ('", *flags.config, "' and '", text,
                       "'); must be once");
      }
      flags.config = text;
    } else {
      PHASOR_RETURN_IF_ERROR(Append(*option, text, &flags.texts));
    }
  }
  return flags;
}

std::string Version() {
  return absl::StrCat("phasor-server ", PHASOR_VERSION, " (numerics ", kNumericsVersion, ")\n");
}

// The source of an option's value, and its text.
struct Source {
  std::string where;
  std::optional<std::string> text;  // not set: the default
};

Source SourceOf(const Option& option, const Flags& flags, const GetEnvironment& environment,
                const ConfigFile& file) {
  if (const auto flag = flags.texts.find(option.name); flag != flags.texts.end()) {
    return {"--" + option.name, flag->second};
  }
  const std::string variable = VariableOf(option.name);
  if (const std::string text = environment(variable).value_or(""); !text.empty()) {
    return {variable, text};
  }
  if (const auto value = file.values.find(option.name); value != file.values.end()) {
    return {value->second.where, value->second.text};
  }
  return {"default", std::nullopt};
}

// Adds the source of the option's value to `status`, whose message begins with the option. A flag
// is not added: its name would only repeat the option's.
absl::Status WithSource(const absl::Status& status, const std::map<std::string, Source>& sources) {
  if (status.ok()) return status;
  const absl::string_view message = status.message();
  const auto source = sources.find(std::string(message.substr(0, message.find(':'))));
  if (source == sources.end() || !source->second.text.has_value()) return status;
  const std::string& where = source->second.where;
  if (absl::StartsWith(where, "--")) return status;
  return absl::Status(status.code(), absl::StrCat(where, ": ", message));
}

// Sets every option from its source and validates all of them.
absl::Status SetOptions(const std::map<std::string, Source>& sources, ServerOptions* options) {
  for (const Option& option : Options()) {
    const Source& source = sources.at(option.name);
    if (source.text.has_value()) {
      PHASOR_RETURN_IF_ERROR(SetOption(*source.text, option, options));
    }
  }
  return options->Validate();
}

}  // namespace

absl::StatusOr<ServerCommand> ParseServerCommand(const std::vector<std::string>& arguments,
                                                 const GetEnvironment& environment) {
  ServerCommand command;
  PHASOR_ASSIGN_OR_RETURN(const Flags flags, ReadFlags(arguments));
  if (flags.help || flags.version) {
    command.print = flags.help ? ServerHelp() : Version();
    command.reads_options = false;
    return command;
  }
  ConfigFile file;
  const std::string path = flags.config.value_or(environment(VariableOf("config")).value_or(""));
  if (flags.config.has_value() || !path.empty()) {
    PHASOR_ASSIGN_OR_RETURN(file, ReadConfigFile(path));
  }
  std::map<std::string, Source> sources;
  for (const Option& option : Options()) {
    sources[option.name] = SourceOf(option, flags, environment, file);
  }
  command.options.encoders = std::move(file.encoders);
  PHASOR_RETURN_IF_ERROR(WithSource(SetOptions(sources, &command.options), sources));
  if (flags.print_config) {
    std::map<std::string, std::string> origins;
    for (const auto& [name, source] : sources) origins[name] = source.where;
    command.print = PrintConfig(command.options, origins);
  } else if (flags.check_config) {
    command.print = "phasor-server: the configuration is valid\n";
  }
  return command;
}

std::vector<std::string> SuspectVariables(const std::vector<std::string>& names) {
  std::vector<std::string> known = {VariableOf("config")};
  for (const Option& option : Options()) known.push_back(VariableOf(option.name));
  std::vector<std::string> complaints;
  for (const std::string& name : names) {
    const std::string nearest = NearestName(name, known);
    if (!absl::StartsWith(name, "PHASOR_") || name == nearest) continue;
    if (EditDistance(name, nearest) > kSuspectEdits) continue;
    complaints.push_back(absl::StrCat(name, ": ignored; did you mean ", nearest, "?"));
  }
  return complaints;
}

std::string ServerHelp() {
  std::string help =
      "phasor-server computes position embeddings and rotary embeddings over gRPC.\n\n"
      "  --config FILE  (PHASOR_CONFIG)\n      a file with the options below and with encoders, in "
      "protobuf's text format or JSON; read again on SIGHUP\n"
      "  --check-config\n      check flags, environment and file, say what is wrong, and exit\n"
      "  --print-config\n      print the resulting options as such a file, and exit\n"
      "  --help, --version\n      print this text, or the version, and exit\n";
  const ServerOptions defaults;
  for (const Option& option : Options()) {
    absl::StrAppendFormat(&help, "  --%s  (%s)\n      %s\n      default %s; accepted: %s\n",
                          option.name, VariableOf(option.name), option.help,
                          FormatOption(defaults, option), AcceptedBy(option));
  }
  absl::StrAppend(
      &help,
      "\nA flag wins over the environment variable beside it, and the variable wins over "
      "the configuration file (docs/configuration.md).\nExit status: 0: stopped, every "
      "call was answered. 1: could not start, or could not drain in time. 2: bad "
      "options. 75: the device was lost; start it again. 128 + N: "
      "signal N came while the server started or drained.\n");
  return help;
}

}  // namespace phasor
