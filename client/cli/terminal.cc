// SPDX-License-Identifier: Apache-2.0
// Switches the terminal to its alternate screen, draws to it, reads keys, and restores it at the
// end or at a signal.
#include "client/cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace phasor::cli {
namespace {

// Switch to the alternate screen and hide the cursor; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// Global, because signal handlers use it and take no arguments.
termios modes_before;
bool modes_changed = false;
int resized[2] = {-1, -1};  // a pipe with a byte after the window has changed

void WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the terminal is gone
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Restores the terminal. Safe in a signal handler.
void Restore() {
  WriteAll(kLeave);
  if (modes_changed) tcsetattr(STDIN_FILENO, TCSANOW, &modes_before);
  modes_changed = false;
}

void OnEndingSignal(int number) {
  Restore();
  if (number == SIGINT) _exit(0);
  signal(number, SIG_DFL);
  raise(number);
}

void Handle(int number, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(number, &action, nullptr);
}

bool ChangeModes() {
  if (tcgetattr(STDIN_FILENO, &modes_before) != 0) return false;
  termios modes = modes_before;
  modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  // Ctrl-Z is disabled: it would leave the terminal in this state.
  modes.c_cc[VSUSP] = _POSIX_VDISABLE;
  modes.c_cc[VMIN] = 1;
  modes.c_cc[VTIME] = 0;
  modes_changed = true;
  return tcsetattr(STDIN_FILENO, TCSANOW, &modes) == 0;
}

// Returns false if q was pressed or the input has ended.
bool GoesOnAfterKeys() {
  char keys[64];
  const ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  return count > 0 && std::string_view(keys, count).find_first_of("qQ") == std::string_view::npos;
}

}  // namespace

bool Terminal::IsThere() { return isatty(STDOUT_FILENO) != 0; }

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Open() {
  if (!IsThere()) return absl::UnavailableError("standard output: no terminal; run this in one");
  std::unique_ptr<Terminal> terminal(new Terminal);  // from here on its destructor restores
  for (const int number : kEndingSignals) Handle(number, &OnEndingSignal, 0);
  if (pipe2(resized, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::ResourceExhaustedError("terminal: no pipe; close other files");
  }
  Handle(
      SIGWINCH,
      [](int) {
        const int error = errno;
        [[maybe_unused]] const ssize_t written = write(resized[1], "", 1);
        errno = error;
      },
      0);
  if (isatty(STDIN_FILENO) != 0 && !ChangeModes()) {
    return absl::UnavailableError(
        "standard input: the terminal's modes cannot be changed; use another terminal");
  }
  WriteAll(kEnter);
  return terminal;
}

Terminal::~Terminal() {
  Restore();
  for (const int number : kEndingSignals) Handle(number, SIG_DFL, 0);
  Handle(SIGWINCH, SIG_DFL, 0);
  for (int& end : resized) close(std::exchange(end, -1));
}

Terminal::Size Terminal::size() const {
  winsize window = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) {
    return {};
  }
  return {.width = window.ws_col, .height = window.ws_row};
}

void Terminal::Draw(std::string_view lines) const {
  const Size room = size();
  std::string text = "\x1b[H";
  for (int row = 0; row < room.height && !lines.empty(); ++row) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    // A line feed after the last line would scroll the screen.
    if (row > 0) text += "\r\n";
    text += lines.substr(0, std::min(end, static_cast<size_t>(room.width)));
    text += "\x1b[K";  // erase the rest of the old line
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  WriteAll(text + "\x1b[J");
}

Terminal::Event Terminal::Wait(std::chrono::steady_clock::time_point until) {
  for (;;) {
    const auto left = std::max(until - std::chrono::steady_clock::now(), {});
    const timespec time = absl::ToTimespec(absl::FromChrono(left));
    pollfd ready[] = {{.fd = modes_changed ? STDIN_FILENO : -1, .events = POLLIN},
                      {.fd = resized[0], .events = POLLIN}};
    if (ppoll(ready, 2, &time, nullptr) == 0) return Event::kTimeIsUp;
    char bytes[64];
    if (read(resized[0], bytes, sizeof(bytes)) > 0) return Event::kResized;
    if (ready[0].revents != 0 && !GoesOnAfterKeys()) return Event::kQuit;
  }
}

}  // namespace phasor::cli
