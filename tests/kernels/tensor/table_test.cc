// SPDX-License-Identifier: Apache-2.0
// The names of tables, which become file names.
#include "kernels/tensor/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

TEST(TableTest, NamesAreLowerCaseLettersDigitsDotsUnderscoresAndDashes) {
  for (const char* name : {"a", "t5-small.relative_attention_bias", "0", "_", "-x", "a..b"}) {
    EXPECT_THAT(CheckTableName(name, "item.table"), IsOk()) << name;
  }
  EXPECT_THAT(CheckTableName(std::string(128, 'a'), "item.table"), IsOk());
}

TEST(TableTest, NamesThatCouldLeaveTheDirectoryAreRefused) {
  using namespace std::string_literals;
  for (const std::string& name :
       {""s, "."s, ".."s, "../a"s, "a/b"s, "/etc/passwd"s, ".hidden"s, "a\\b"s, "A"s, "a b"s,
        "a\0b"s, "\xC3\xA4"s, "a\n"s, std::string(129, 'a')}) {
    EXPECT_THAT(CheckTableName(name, "item.table"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("item.table: is no name of a table; must be")))
        << name;
  }
}

TEST(TableTest, WithoutASourceTablesHaveNoNames) {
  EXPECT_THAT(FindTable(nullptr, "a", "item.table"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("on a server only")));
}

}  // namespace
}  // namespace phasor
