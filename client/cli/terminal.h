// SPDX-License-Identifier: Apache-2.0
// The terminal of a program that redraws it.
#ifndef PHASOR_CLIENT_CLI_TERMINAL_H_
#define PHASOR_CLIENT_CLI_TERMINAL_H_

#include <chrono>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

namespace phasor::cli {

// The alternate screen of standard output, and keys of standard input one by one, without echo, if
// that is a terminal too. All is as it was when this is gone, also by a signal: SIGINT ends the
// program with status 0 then, SIGTERM, SIGHUP and SIGQUIT as they do. One at a time. Threads: one.
class Terminal {
 public:
  // Whether standard output is one.
  static bool IsThere();
  // UNAVAILABLE: it is none, or does not do as it is told.
  static absl::StatusOr<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    int width = 80;
    int height = 24;
  };
  Size size() const;

  // In place of what there is, in one piece: nothing flickers. Lines are of printable ASCII and end
  // with a line feed; what does not fit is left out.
  void Draw(std::string_view lines) const;

  enum class Event { kTimeIsUp, kResized, kQuit };
  // Until then. kQuit: q was pressed, or nobody is there any more to press it.
  Event Wait(std::chrono::steady_clock::time_point until);

 private:
  Terminal() = default;
};

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_TERMINAL_H_
