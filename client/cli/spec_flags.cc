// SPDX-License-Identifier: Apache-2.0
// The flags of a spec, one for each of its fields.
#include "client/cli/spec_flags.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include "absl/strings/str_join.h"
#include "kernels/base/invalid.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/spec/fields.h"
#include "kernels/spec/names.h"
#include "kernels/spec/spec_json.h"

namespace phasor::cli {
namespace {

constexpr char kSpecHelp[] =
    "File with a spec as JSON, as `phasor resolve --json` prints it; - reads "
    "standard input. Flags override it";

constexpr char kConfigHelp[] =
    "A model's config.json, which describes its rotary embedding; - reads standard "
    "input. Flags override it";

// Adds a flag whose text `read` turns into `*field`. A text that it refuses is a usage error.
template <typename T>
CLI::Option* AddParsed(CLI::App& app, const std::string& flag, T* field, const std::string& help,
                       std::function<absl::StatusOr<T>(const std::string&)> read) {
  return app
      .add_option_function<std::string>(
          flag, [](const std::string&) {}, help)
      ->check([field, read](const std::string& text) {
        auto value = read(text);
        if (!value.ok()) return std::string(value.status().message());
        *field = *std::move(value);
        return std::string();
      })
      ->type_name("");
}

// The text of a file or of standard input. Reads no more than the largest JSON that is accepted.
absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path);
  std::istream& in = path == "-" ? std::cin : file;
  std::string text(kMaxJsonBytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in && !in.eof())
    return absl::NotFoundError(StrCat(path, ": cannot be read; must be a file that you may read"));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.empty()) return InvalidAt(path, "empty; must be JSON");
  return text;
}

absl::StatusOr<Spec> ReadSpec(const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return SpecFromJson(text);
}

template <typename T>
CLI::Option* AddFlag(CLI::App& app, const std::string& flag, std::optional<T>& field,
                     const std::string& help) {
  if constexpr (std::is_enum_v<T>) {
    std::vector<T> values;
    for (int i = 0; i < EnumeratorCount<T>(); ++i) values.push_back(static_cast<T>(i));
    return AddEnumFlag<T>(
        app, flag, std::move(values), +[](T value) { return Name(value); },
        [&field](T value) { field = value; }, help);
  } else {
    return app.add_option(flag, field, help);
  }
}

template <typename T>
CLI::Option* AddFlag(CLI::App& app, const std::string& flag, std::vector<T>& field,
                     const std::string& help) {
  return app.add_option(flag, field, help + ", comma separated")->delimiter(',');
}

CLI::Option* AddFlag(CLI::App& app, const std::string& flag, RopeScaling& field,
                     const std::string& help) {
  return AddParsed<RopeScaling>(app, flag, &field, help, RopeScalingFromJson);
}

CLI::Option* AddFlag(CLI::App& app, const std::string& flag, std::optional<ParityArithmetic>& field,
                     const std::string& help) {
  return AddParsed<std::optional<ParityArithmetic>>(app, flag, &field, help, ParityFromJson);
}

CLI::Option* AddFlag(CLI::App& app, const std::string& flag, std::optional<XposScaling>& field,
                     const std::string& help) {
  return AddParsed<std::optional<XposScaling>>(app, flag, &field, help, XposFromJson);
}

}  // namespace

CLI::Validator IsOneOf(std::vector<std::string> names) {
  const std::string listed = StrCat("{", absl::StrJoin(names, ","), "}");
  return CLI::Validator(
      [names = std::move(names), listed](std::string& text) {
        const auto found = std::find(names.begin(), names.end(), text);
        if (found != names.end()) return std::string();
        return StrCat(text, " is not accepted", DidYouMean(text, names), " must be one of ",
                      listed);
      },
      listed);
}

void AddSpecFlags(CLI::App& app, Spec& spec) {
  constexpr char kGroup[] = "Spec";
  // CLI11 processes options in the order in which they are added, so --spec comes before the flags
  // that override its fields.
  AddParsed<Spec>(app, "--spec", &spec, kSpecHelp, ReadSpec)->group(kGroup);
  AddParsed<std::string>(app, "--config", &spec.config_json, kConfigHelp, ReadText)->group(kGroup);
  app.add_option("--preset", spec.preset,
                 "Name of a preset, see `phasor presets`. Flags override it")
      ->group(kGroup);
  app.add_option("--encoder", spec.encoder,
                 "Name that the server's configuration gives to a spec. Flags override it")
      ->group(kGroup);
  VisitSpecFields([&](const SpecField& field, auto member, auto) {
    AddFlag(app, "--" + FlagName(field.name), spec.*member, field.help)->group(kGroup);
  });
}

}  // namespace phasor::cli
