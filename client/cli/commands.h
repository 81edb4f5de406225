// SPDX-License-Identifier: Apache-2.0
// The subcommands of `phasor`. Each adds its flags when it is made, and runs later with their
// values.
#ifndef PHASOR_CLIENT_CLI_COMMANDS_H_
#define PHASOR_CLIENT_CLI_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"

namespace phasor::cli {

// Flags that every subcommand has.
struct CommonFlags {
  std::string server;  // empty: in process
  double timeout_s = 30;
  int threads = 1;
  bool json = false;
  bool tls = false;
  TlsOptions files;  // files of TLS; setting one turns TLS on
  std::string token_file;
  bool token_over_plaintext = false;

  ClientOptions Options() const;
};

inline constexpr char kU2Help[] =
    "Read u2 files as bfloat16: .npy has no bfloat16, so its bits are stored as u2";

// Flags that say how results are shown and stored.
struct ResultFlags {
  int64_t columns = 8;
  bool u2_as_bf16 = false;

  void Add(CLI::App& app);
};

// A subcommand. Threads: one.
class Command {
 public:
  virtual ~Command() = default;
  // Runs the command and writes its result to `out`. The error is shown to the user.
  virtual absl::Status Run(std::ostream& out) = 0;

  CLI::App* app() const { return app_; }

 protected:
  // Where the command runs, and so which flags it has: where the user wants it, with this process
  // as the default; on a server; in this process.
  enum class Runs : uint8_t { kAnywhere, kOnServer, kHere };

  Command(CLI::App& parent, const std::string& name, const std::string& help,
          Runs runs = Runs::kAnywhere);
  absl::StatusOr<Client> Connect() const { return Connect(common_.Options()); }
  absl::StatusOr<Client> Connect(const ClientOptions& options) const;
  // Writes a result to the .npy `path`, or prints it if that is empty; with --json as `name`.
  absl::Status Show(const EncodeResult& result, const char* name, const std::string& path,
                    int64_t columns, std::ostream& out) const;

  CommonFlags common_;

 private:
  CLI::App* const app_;
  const Runs runs_;
};

// What is wrong with a number, as CLI11 wants it. CLI::PositiveNumber prints the largest double,
// and CLI::Range lets NaN pass.
std::string IsAbove0(const std::string& text);

// The error of a command whose output cannot be written.
absl::Status CannotPrint();

using Commands = std::vector<std::unique_ptr<Command>>;

// Makes encode, rope, move-keys, check-cache, bias, tables, resolve, presets, plot, health, info,
// bench and top.
Commands MakeCommands(CLI::App& app);

// Those of them that have files of their own. `bench` comes with `echo-server`, which it starts and
// --help does not list.
std::unique_ptr<Command> MakeMoveCommand(CLI::App& parent);
std::unique_ptr<Command> MakeCheckCommand(CLI::App& parent);
std::unique_ptr<Command> MakePlotCommand(CLI::App& parent);
std::unique_ptr<Command> MakeTopCommand(CLI::App& parent);
void AddTableCommands(CLI::App& app, Commands* commands);
void AddBenchCommands(CLI::App& app, Commands* commands);

// Call it after `app` refused its arguments. An error about the first flag or subcommand that is
// unknown, with the nearest right name, or that stands in the wrong place; empty when something
// else is wrong.
std::string UnknownArgument(const CLI::App& app);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_COMMANDS_H_
