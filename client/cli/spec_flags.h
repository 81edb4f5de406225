// SPDX-License-Identifier: Apache-2.0
// Flags for the fields of a spec. Each has the name of its field.
#ifndef PHASOR_CLIENT_CLI_SPEC_FLAGS_H_
#define PHASOR_CLIENT_CLI_SPEC_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cctype>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/spec/spec.h"

namespace phasor::cli {

// The form of a name in a flag: "PER_ELEMENT" becomes "per-element".
inline std::string FlagName(std::string_view name) {
  std::string flag(name);
  for (char& c : flag) c = c == '_' ? '-' : static_cast<char>(std::tolower(c));
  return flag;
}

// Refuses a text that is none of `names`, and suggests the nearest of them.
CLI::Validator IsOneOf(std::vector<std::string> names);

// A flag that takes the names of `values` and calls `set` with the one given.
template <typename E>
CLI::Option* AddEnumFlag(CLI::App& app, const std::string& flag, std::vector<E> values,
                         std::string_view (*name)(E), std::function<void(E)> set,
                         const std::string& help) {
  std::vector<std::pair<std::string, E>> names;
  for (E value : values) {
    names.emplace_back(FlagName(name(value)), value);
  }
  return app
      .add_option_function<std::string>(
          flag,
          [names, set](const std::string& given) {
            for (const auto& [text, value] : names) {
              if (text == given) set(value);
            }
          },
          help)
      ->check(IsOneOf([&] {
        std::vector<std::string> only;
        for (const auto& [text, value] : names) only.push_back(text);
        return only;
      }()))
      ->type_name("");
}

// Adds one flag for every field, and --spec for all fields at once. They fill `spec`, which must
// outlive the parsing.
void AddSpecFlags(CLI::App& app, Spec& spec);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_SPEC_FLAGS_H_
