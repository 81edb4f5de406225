// SPDX-License-Identifier: Apache-2.0
// Tests `phasor plot`: its pictures, and flags that do not fit.
#include <filesystem>
#include <sstream>
#include <string>

#include "client/cli/commands.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phasor::cli {
namespace {

using ::testing::HasSubstr;

// Runs `phasor plot` with `arguments`; the text that it prints.
absl::StatusOr<std::string> Plot(const std::string& arguments) {
  CLI::App app;
  const std::unique_ptr<Command> command = MakePlotCommand(app);
  app.parse("plot " + arguments);
  std::ostringstream out;
  const absl::Status status = command->Run(out);
  if (!status.ok()) return status;
  return out.str();
}

std::string TempPng(const std::string& name) {
  const std::string path = ::testing::TempDir() + name;
  std::filesystem::remove(path);
  return path;
}

TEST(PlotCommandTest, DrawsValuesOfAnEncoding) {
  const std::string path = TempPng("plot_values.png");
  const auto text = Plot("--preset transformer --dim 32 --range 0:16 --output " + path);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr(path));
  EXPECT_GT(std::filesystem::file_size(path), 100u);
}

TEST(PlotCommandTest, DrawsErrorsOfARotarySpec) {
  const std::string path = TempPng("plot_error.png");
  const auto text = Plot("--preset llama-3 --error --max-position 100000 --json --output " + path);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("\"width\": 720"));
  EXPECT_GT(std::filesystem::file_size(path), 100u);
}

TEST(PlotCommandTest, ErrorTakesNoPositions) {
  const auto text = Plot("--preset llama-3 --error --positions 1 --output " + TempPng("no.png"));
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("--max-position"));
}

}  // namespace
}  // namespace phasor::cli
