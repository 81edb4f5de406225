// SPDX-License-Identifier: Apache-2.0
// Terminal: the screen and keys of a program that redraws itself.
#ifndef PHASOR_CLIENT_CLI_TERMINAL_H_
#define PHASOR_CLIENT_CLI_TERMINAL_H_

#include <chrono>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

namespace phasor::cli {

// The alternate screen of standard output, and single keys of standard input without echo, if that
// is a terminal too. The destructor restores the terminal. So does a signal: SIGINT then ends the
// program with status 0, and SIGTERM, SIGHUP and SIGQUIT end it as usual.
// Only one may exist at a time. Threads: one.
class Terminal {
 public:
  // Whether standard output is a terminal.
  static bool IsThere();
  // UNAVAILABLE: standard output is not a terminal, or it refuses the settings.
  static absl::StatusOr<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    int width = 80;
    int height = 24;
  };
  Size size() const;

  // Replaces the picture in a single write, so that it does not flicker. Lines are printable ASCII
  // and end with a line feed. What does not fit is left out.
  void Draw(std::string_view lines) const;

  enum class Event { kTimeIsUp, kResized, kQuit };
  // Waits for an event, until `until` at most. kQuit: q was pressed, or the input has ended.
  Event Wait(std::chrono::steady_clock::time_point until);

 private:
  Terminal() = default;
};

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_TERMINAL_H_
