// SPDX-License-Identifier: Apache-2.0
// Tests which flags errors name.
#include "client/cli/error_flags.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "client/cli/commands.h"
#include "tests/support/temp_dir.h"

namespace phasor::cli {
namespace {

// The message as `phasor LINE` prints it.
std::string Of(const std::string& line, const std::string& message) {
  CLI::App app("", "phasor");
  const auto commands = MakeCommands(app);
  app.parse(line);
  return WithFlag(*app.get_subcommands().front(), message);
}

TEST(ErrorFlagsTest, FieldsOfSpecsHaveFlagsOfTheirNames) {
  EXPECT_EQ(Of("encode", "item.spec.dim: 5 is odd; ..."), "--dim: 5 is odd; ...");
  EXPECT_EQ(Of("resolve", "spec.rotary_dim: 3"), "--rotary-dim: 3");
  EXPECT_EQ(Of("resolve", "spec.config_json: not JSON"), "--config: not JSON");
  EXPECT_EQ(Of("resolve", "spec.axes_dim[1]: 0"), "--axes-dim[1]: 0");
  EXPECT_EQ(Of("resolve", "parity_comparison.context_length: -1"), "--context-length: -1");
}

TEST(ErrorFlagsTest, FieldsFromAFileKeepTheirPath) {
  const testing::TempDir dir;
  std::ofstream(dir.path() + "/s.json") << "{}";
  const std::string line = "encode --spec " + dir.path() + "/s.json";
  EXPECT_EQ(Of(line, "item.spec.dim: 5 is odd"), "item.spec.dim: 5 is odd");
  EXPECT_EQ(Of(line + " --dim 5", "item.spec.dim: 5 is odd"), "--dim: 5 is odd");
  EXPECT_EQ(Of(line, "item.positions: not set"), "--positions: not set");
}

TEST(ErrorFlagsTest, PositionsAreThoseThatWereGiven) {
  const std::string error = "item.positions.tensor.shape: 1 dimensions";
  EXPECT_EQ(Of("encode --positions 1", error), "--positions.shape: 1 dimensions");
  EXPECT_EQ(Of("encode --positions 1", "item.positions.grid.axes[1]: 0"), "--positions.axes[1]: 0");
  EXPECT_EQ(Of("encode --positions-file x", error), "--positions-file.shape: 1 dimensions");
  EXPECT_EQ(Of("rope --input x --range 0:4", "item.positions: 4"), "--range: 4");
  EXPECT_EQ(Of("rope --input x --from-range 0:4", "item.from_positions: 4"), "--from-range: 4");
  EXPECT_EQ(Of("rope --input x --range 0:4", "item.from_positions: not set"),
            "--from-positions: not set");
}

TEST(ErrorFlagsTest, TensorsAreInputs) {
  const std::string error = "item.tensors[0].tensor.shape[1]: 0";
  EXPECT_EQ(Of("rope --input x", error), "--input.shape[1]: 0");
  EXPECT_EQ(Of("rope --input x --input y", error), "--input[0].shape[1]: 0");
  EXPECT_EQ(Of("rope --input x", "item.tensors[0].inv_scale: set"), "--inv-scale: set");
  EXPECT_EQ(Of("rope --input x", "item.tensors[0].output_dtype: F"), "--output-dtype: F");
}

TEST(ErrorFlagsTest, SomeFlagsHaveOtherNames) {
  EXPECT_EQ(Of("encode", "item.output: EMBEDDING"), "--form: EMBEDDING");
  EXPECT_EQ(Of("encode", "item.out_of_range: CLIP"), "--clip: CLIP");
  EXPECT_EQ(Of("encode", "inproc_threads: 9999"), "--threads: 9999");
  EXPECT_EQ(Of("encode", "target: \"x\" is not known"), "--server: \"x\" is not known");
  EXPECT_EQ(Of("encode", "tls.ca_file: \"x\""), "--ca: \"x\"");
  const std::string move = "move-keys --pages 1 --heads 1 --input x --run 0:1:2:3";
  EXPECT_EQ(Of(move, "item.layouts[0].name: unknown 'x'"), "--layout: unknown 'x'");
  EXPECT_EQ(Of(move, "item.layouts[0].page_bytes: 1"), "--page-bytes: 1");
  EXPECT_EQ(Of(move, "item.specs[0].spec.head_dim: 5"), "--head-dim: 5");
  EXPECT_EQ(Of(move, "item.groups[0]: 4 tokens"), "--run: 4 tokens");
  EXPECT_EQ(Of(move, "item.groups[0].runs[0].first: 9"), "--run.first: 9");
}

TEST(ErrorFlagsTest, OtherMessagesStayAsTheyAre) {
  for (const std::string message :
       {"item.layers[0]: rows", "x.npy: cannot be opened", "connections to all backends failing",
        "--range: 'a' is no range", "output: no memory", "item: ", "dim", "", ": ",
        "[]: ", ".: "}) {
    EXPECT_EQ(Of("presets", message), message);
  }
  EXPECT_EQ(Of("encode", "output: no memory for 9 bytes"), "output: no memory for 9 bytes");
}

}  // namespace
}  // namespace phasor::cli
