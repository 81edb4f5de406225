// SPDX-License-Identifier: Apache-2.0
// Tests that a terminal is restored at every end, and its events and drawing.
#include "client/cli/terminal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/pty.h"

namespace phasor::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::Pty;

constexpr char kOtherScreen[] = "\x1b[?1049h";
constexpr char kFirstScreen[] = "\x1b[?1049l";
constexpr int kNoTerminal = 50;

// Draws the size of its window, and again when that changes, until it is told to quit.
int DrawsItsSize() {
  auto terminal = Terminal::Open();
  if (!terminal.ok()) return kNoTerminal;
  for (;;) {
    const Terminal::Size size = (*terminal)->size();
    (*terminal)->Draw("size " + std::to_string(size.width) + "x" + std::to_string(size.height) +
                      ".\nsecond\n");
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    switch ((*terminal)->Wait(until)) {
      case Terminal::Event::kQuit:
        return 7;
      case Terminal::Event::kTimeIsUp:
        return 8;
      case Terminal::Event::kResized:
        break;
    }
  }
}

void ExpectModesAreBack(const Pty& pty) {
  const termios& before = pty.first_modes();
  const termios now = pty.modes();
  EXPECT_EQ(now.c_lflag, before.c_lflag);
  EXPECT_EQ(now.c_cc[VSUSP], before.c_cc[VSUSP]);
}

TEST(TerminalTest, KeyQLeavesTheTerminalAsItWas) {
  const std::string ready = "second\x1b[K\x1b[J";
  Pty pty(80, 24, &DrawsItsSize);
  EXPECT_THAT(pty.ReadUntil(ready), HasSubstr(kOtherScreen));
  EXPECT_EQ(pty.modes().c_lflag & (ICANON | ECHO), 0u);
  pty.Send("x");
  pty.Send("q");
  EXPECT_THAT(pty.ReadUntil(kFirstScreen), EndsWith(std::string("\x1b[?25h") + kFirstScreen));
  const int status = pty.Wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_NE(pty.first_modes().c_lflag & (ICANON | ECHO), 0u);
  ExpectModesAreBack(pty);
}

TEST(TerminalTest, AnInterruptLeavesItAsItWasWithStatusZero) {
  Pty pty(80, 24, &DrawsItsSize);
  pty.ReadUntil("second");
  pty.Send("\x03");  // Ctrl-C
  EXPECT_THAT(pty.ReadUntil(kFirstScreen), EndsWith(kFirstScreen));
  const int status = pty.Wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ExpectModesAreBack(pty);
}

TEST(TerminalTest, ASignalThatEndsTheProgramEndsItAfterThat) {
  Pty pty(80, 24, &DrawsItsSize);
  pty.ReadUntil("second");
  ASSERT_EQ(kill(pty.child(), SIGTERM), 0);
  EXPECT_THAT(pty.ReadUntil(kFirstScreen), EndsWith(kFirstScreen));
  const int status = pty.Wait();
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
  ExpectModesAreBack(pty);
}

TEST(TerminalTest, AWindowThatChangesIsAnEvent) {
  Pty pty(80, 24, &DrawsItsSize);
  EXPECT_THAT(pty.ReadUntil("size 80x24"), EndsWith("size 80x24"));
  pty.ReadUntil("second");
  pty.Resize(132, 50);
  EXPECT_THAT(pty.ReadUntil("size 132x50"), EndsWith("size 132x50"));
}

TEST(TerminalTest, WhatDoesNotFitTheWindowIsNotDrawn) {
  Pty pty(4, 1, &DrawsItsSize);
  EXPECT_THAT(pty.ReadUntil("\x1b[J"), EndsWith("\x1b[Hsize\x1b[K\x1b[J"));
}

TEST(TerminalTest, TimeUpIsAnEvent) {
  Pty pty(80, 24, [] {
    auto terminal = Terminal::Open();
    if (!terminal.ok()) return kNoTerminal;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
    return (*terminal)->Wait(until) == Terminal::Event::kTimeIsUp ? 3 : 4;
  });
  EXPECT_EQ(WEXITSTATUS(pty.Wait()), 3);
}

// A key that is there is seen by one who is always late, too.
TEST(TerminalTest, KeysAreSeenWhenTimeIsUpAlready) {
  Pty pty(80, 24, [] {
    auto terminal = Terminal::Open();
    if (!terminal.ok()) return kNoTerminal;
    (*terminal)->Draw("ready\n");
    while ((*terminal)->Wait(std::chrono::steady_clock::now()) != Terminal::Event::kQuit) {
    }
    return 5;
  });
  pty.ReadUntil("ready");
  pty.Send("q");
  EXPECT_EQ(WEXITSTATUS(pty.Wait()), 5);
}

}  // namespace
}  // namespace phasor::cli
