// SPDX-License-Identifier: Apache-2.0
// Runs the binary as a user does, and checks its output, error text and exit status.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/run_shell.h"
#include "tests/support/temp_dir.h"

namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Outcome = phasor::testing::ShellOutcome;

Outcome Phasor(const std::string& arguments) {
  return phasor::testing::RunShell(PHASOR_BINARY " " + arguments);
}

TEST(MainTest, EncodesTheTimestepExample) {
  const Outcome run =
      Phasor("encode --preset timestep-sin-cos --dim 128 --positions 10,12,16,100 --columns 4");
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.text, HasSubstr("[0]  -0.544021   0.692634   0.937633   0.209077"));
  EXPECT_THAT(run.text, HasSubstr("[1]  -0.536573  -0.823069   0.413275   0.998115"));
  EXPECT_THAT(run.text, HasSubstr("[3]  -0.506366  -0.979540  -0.397511   0.860007"));
}

TEST(MainTest, ErrorsNameCodeFlagAndAcceptedValues) {
  const Outcome run = Phasor("encode --preset transformer --dim 0 --positions 1");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.text, StartsWith("phasor: INVALID_ARGUMENT: --dim: 0"));
  const Outcome missing = Phasor("rope --preset rope-half-split --positions 1 --input none.npy");
  EXPECT_EQ(missing.status, 1);
  EXPECT_EQ(missing.text,
            "phasor: NOT_FOUND: none.npy: cannot be opened; must be a file that you may read\n");
}

TEST(MainTest, OutputThatCannotBeWrittenIsAnError) {
  const Outcome run = Phasor("encode --preset transformer --dim 4 --range 0:100000 >/dev/full");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.text, HasSubstr("UNAVAILABLE: standard output: cannot be written"));
  for (const char* const shown : {"--help", "encode --help", "--version"}) {
    const Outcome help = Phasor(std::string(shown) + " >/dev/full");
    EXPECT_EQ(help.status, 1) << shown;
    EXPECT_THAT(help.text, HasSubstr("UNAVAILABLE: standard output: cannot be written")) << shown;
  }
}

TEST(MainTest, TheResultDoesNotOverwriteAnOutputThatIsStandardOutput) {
  const phasor::testing::TempDir dir;
  const std::string encode = "encode --preset transformer --dim 4 --range 0:8 --output ";
  const Outcome run = Phasor(encode + dir.path() + "/a.npy");
  ASSERT_EQ(run.status, 0);
  EXPECT_EQ(Phasor(encode + "/dev/stdout >" + dir.path() + "/b.npy").text, run.text);
  EXPECT_EQ(dir.Read("b.npy"), dir.Read("a.npy"));
  EXPECT_EQ(Phasor(encode + "/dev/stdout 2>/dev/null | cat").text, dir.Read("a.npy"));
  Phasor(encode + "/dev/stdout 2>/dev/null >>" + dir.path() + "/b.npy");
  EXPECT_EQ(dir.Read("b.npy"), dir.Read("a.npy") + dir.Read("a.npy"));
}

// What follows would give rows of other positions, or compute elsewhere than meant.
TEST(MainTest, AxesThatTheSpecDoesNotHaveAreRefused) {
  const std::string two = " --positions 0/1,0/2";
  EXPECT_EQ(
      Phasor("encode --preset transformer --dim 4" + two).text,
      "phasor: INVALID_ARGUMENT: --positions: 2 axes; must be 1, the axes of the spec or table\n");
  EXPECT_EQ(Phasor("plot --preset transformer --dim 4 --output /dev/null" + two).status, 1);
  EXPECT_THAT(Phasor("encode --table t" + two).text, HasSubstr("--positions: 2 axes; must be 1"));
  EXPECT_EQ(Phasor("encode --preset grid-2d-concat --dim 8" + two).status, 0);
}

TEST(MainTest, AnEmptyServerAndTlsWithoutOneAreRefused) {
  const std::string encode = "encode --preset transformer --dim 4 --positions 1 ";
  EXPECT_THAT(Phasor(encode + "--server ''").text,
              HasSubstr("--server: empty; must be an address"));
  EXPECT_THAT(Phasor("bench --preset llama-3 --head-dim 8 --duration 0.1 --server ''").text,
              HasSubstr("--server: empty"));
  EXPECT_THAT(Phasor(encode + "--ca /nope").text, HasSubstr("--ca: given without --server;"));
  EXPECT_THAT(Phasor(encode + "--token-file /nope").text, HasSubstr("--token-file: given without"));
}

TEST(MainTest, TwoResultsDoNotGoToOneFile) {
  EXPECT_THAT(
      Phasor(
          "rope --preset rope-half-split --positions 1 --input a --input b --output x --output x")
          .text,
      HasSubstr("--output: one file given twice"));
  EXPECT_THAT(
      Phasor(
          "rope --preset rope-half-split --positions 1 --input a --input b --output x --output ./x")
          .text,
      HasSubstr("--output: one file given twice"));
}

TEST(MainTest, UsageErrorsExitWithTwo) {
  EXPECT_EQ(Phasor("encode --timeout 0").status, 2);
  EXPECT_EQ(Phasor("encode --threads -3").status, 2);
  EXPECT_THAT(Phasor("encode --columns -1").text, HasSubstr("not in range 0 to 1099511627776"));
  EXPECT_EQ(Phasor("").status, 2);
  EXPECT_EQ(Phasor("frobnicate").status, 2);
  EXPECT_EQ(Phasor("encode --no-such-flag").status, 2);
  EXPECT_EQ(Phasor("encode --order sideways").status, 2);
  EXPECT_EQ(Phasor("encode --positions 1 --range 0:3").status, 2);
}

TEST(MainTest, ANumberThatDoesNotFitIsNotTakenForTheNearest) {
  for (const char* const number : {"99999999999999999999", "-99999999999999999999"}) {
    const Outcome run = Phasor(std::string("encode --preset transformer --dim ") + number);
    EXPECT_EQ(run.status, 2) << number;
    EXPECT_THAT(run.text, StartsWith(std::string("--dim: '") + number + "'; must be a number of"));
  }
}

TEST(MainTest, WhatIsNoNumberIsNoTime) {
  for (const char* const command : {"bench --preset nix --duration", "bench --preset nix --rate",
                                    "top --metrics 127.0.0.1:1 --interval"}) {
    const Outcome run = Phasor(std::string(command) + " nan");
    EXPECT_EQ(run.status, 2) << command;
    EXPECT_THAT(run.text, HasSubstr("'nan'; must be a number above 0")) << command;
  }
}

TEST(MainTest, AnEmptyFileIsNotTakenForNone) {
  for (const char* const flag : {"--config", "--spec"}) {
    const Outcome run = Phasor(std::string("resolve --preset llama-2 ") + flag + " /dev/null");
    EXPECT_EQ(run.status, 2) << flag;
    EXPECT_THAT(run.text, HasSubstr("/dev/null: empty; must be JSON")) << flag;
  }
}

TEST(MainTest, AWrongNameSuggestsTheNearest) {
  EXPECT_EQ(Phasor("encode --preset transformr --dim 8 --positions 1").text,
            "phasor: NOT_FOUND: --preset: no preset named \"transformr\"; did you mean "
            "\"transformer\"? must be one of ListPresets (command line: phasor presets)\n");
  EXPECT_EQ(Phasor("encode --prest transformer --dim 8").text,
            "phasor: --prest: no such flag of `phasor encode`; did you mean \"--preset\"? see "
            "`phasor encode --help`\n");
  EXPECT_THAT(Phasor("encode --prest=transformer").text, HasSubstr("did you mean \"--preset\"?"));
  EXPECT_EQ(Phasor("encdoe --preset transformer").text,
            "phasor: encdoe: no such command of `phasor`; did you mean \"encode\"? see "
            "`phasor --help`\n");
  EXPECT_THAT(Phasor("tables gett t").text, HasSubstr("did you mean \"get\"?"));
  EXPECT_EQ(Phasor("--server a:1 encode --dim 4").text,
            "phasor: --server: must come after `phasor encode`\n");
  EXPECT_THAT(Phasor("encode --order sin-cso").text,
              StartsWith("--order: sin-cso is not accepted; did you mean \"sin-cos\"? must be one "
                         "of {sin-cos,cos-sin,cos-only}"));
  EXPECT_THAT(Phasor("bias --preset t6").text, HasSubstr("did you mean \"t5\"?"));
}

TEST(MainTest, HelpAndVersionSucceed) {
  EXPECT_EQ(Phasor("--help").status, 0);
  EXPECT_EQ(Phasor("rope --help").status, 0);
  EXPECT_THAT(Phasor("encode --help").text, HasSubstr("--rope-theta"));
  EXPECT_EQ(Phasor("--version").status, 0);
}

}  // namespace
