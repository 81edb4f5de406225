// SPDX-License-Identifier: Apache-2.0
// The table of options: what each is called, means and accepts, and where its value lives. Flags,
// environment, configuration file, help and checks follow it; the rows are in options.cc.
#ifndef PHASOR_SERVER_CONFIG_OPTION_TABLE_H_
#define PHASOR_SERVER_CONFIG_OPTION_TABLE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/config/options.h"

namespace phasor {

namespace option_kinds {

// What kind of value an option has, where it lives and what is accepted.
struct Bytes {
  int64_t ServerOptions::*field;
  int64_t min, max;
  bool zero_is_off = false;  // 0 is accepted, whatever `min` is
};
struct Count {
  std::variant<int ServerOptions::*, int64_t ServerOptions::*> field;
  int64_t min, max;
};
struct Time {
  absl::Duration ServerOptions::*field;
  absl::Duration min, max;
  bool zero_is_off = false;  // 0 is accepted, whatever `min` is
};
struct Choice {
  std::string ServerOptions::*field;
  std::vector<std::string> accepted;
};
struct Text {
  std::string ServerOptions::*field;
  std::string accepted = "a path; empty: none";
};
struct Switch {
  bool ServerOptions::*field;
};
// Numbers of devices; an empty vector means all.
struct Devices {
  std::vector<int> ServerOptions::*field;
};
// Permissions of a file, as an octal number.
struct Mode {
  int ServerOptions::*field;
};
struct Addresses {
  std::vector<std::string> ServerOptions::*field;
  bool may_be_empty = false;
};

}  // namespace option_kinds

// Whether a running server takes a new value over.
enum class Reload : uint8_t { kNeedsRestart, kTakesEffect };

struct Option {
  std::string name;
  std::string help;
  std::variant<option_kinds::Bytes, option_kinds::Count, option_kinds::Time, option_kinds::Choice,
               option_kinds::Text, option_kinds::Switch, option_kinds::Mode,
               option_kinds::Addresses, option_kinds::Devices>
      value;
  Reload reload = Reload::kNeedsRestart;
};

// Every option. Lives for ever.
const std::vector<Option>& Options();

// The option of that name, or nullptr.
const Option* FindOption(const std::string& name);

// What the option accepts, e.g. "1 to 8".
std::string AcceptedBy(const Option& option);
// Its value in `options`, as SetOption reads it.
std::string TextOf(const ServerOptions& options, const Option& option);
// The same for people.
std::string FormatOption(const ServerOptions& options, const Option& option);
// Sets it. INVALID_ARGUMENT: `text` is no such value. Whether it is in range is CheckOption's.
absl::Status SetOption(const std::string& text, const Option& option, ServerOptions* options);
// INVALID_ARGUMENT: its value in `options` is out of range.
absl::Status CheckOption(const ServerOptions& options, const Option& option);

// Its environment variable: PHASOR_MAX_BATCH_ITEMS.
std::string VariableOf(const std::string& name);

}  // namespace phasor

#endif  // PHASOR_SERVER_CONFIG_OPTION_TABLE_H_
