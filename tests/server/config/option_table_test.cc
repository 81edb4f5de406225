// SPDX-License-Identifier: Apache-2.0
// Tests single rows of the option table: reading, writing and checking a value.
#include "server/config/option_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace phasor {
namespace {

using ::testing::HasSubstr;

TEST(OptionTableTest, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const Option& option : Options()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_EQ(FindOption(option.name), &option);
  }
  EXPECT_EQ(FindOption("max_batch_items"), nullptr);
}

TEST(OptionTableTest, ValueIsSetCheckedAndFormatted) {
  const Option& option = *FindOption("max-header-bytes");
  ServerOptions options;
  ASSERT_TRUE(SetOption("2KiB", option, &options).ok());
  EXPECT_EQ(options.max_header_bytes, 2048);
  EXPECT_EQ(FormatOption(options, option), "2KiB");
  EXPECT_TRUE(CheckOption(options, option).ok());
  ASSERT_TRUE(SetOption("1", option, &options).ok());
  EXPECT_THAT(CheckOption(options, option).message(),
              HasSubstr("max-header-bytes: '1' is not accepted; accepted: 1KiB to 64MiB"));
}

TEST(OptionTableTest, TextThatIsNoValueLeavesTheOptionAlone) {
  ServerOptions options;
  const absl::Status status = SetOption("many", *FindOption("threads"), &options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("threads: 'many' is not accepted; accepted: 0 to 1024"));
  EXPECT_EQ(options.threads, 0);
}

TEST(OptionTableTest, AWrongChoiceSuggestsTheNearest) {
  ServerOptions options;
  options.backend = "cudda";
  EXPECT_THAT(
      CheckOption(options, *FindOption("backend")).message(),
      HasSubstr("backend: 'cudda' is not accepted; did you mean \"cuda\"? accepted: auto, "));
}

TEST(OptionTableTest, VariablesHaveThePrefix) {
  EXPECT_EQ(VariableOf("max-batch-items"), "PHASOR_MAX_BATCH_ITEMS");
}

}  // namespace
}  // namespace phasor
