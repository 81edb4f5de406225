// SPDX-License-Identifier: Apache-2.0
// Widths of heads: which keys a class reads, and what it has where the file says nothing.
#include "kernels/spec/config_heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kernels/spec/configurations.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using testing::Config;
using testing::ExpectRefused;
using testing::Read;

TEST(ConfigHeadsTest, AFileThatSaysNothingHasTheClassesWidth) {
  EXPECT_EQ(Read(Config(R"({"model_type": "llama"})")).head_dim, 128);
  EXPECT_EQ(Read(Config(R"({"model_type": "gpt_neox"})")).head_dim, 96);
  const Spec deepseek = Read(Config(R"({"model_type": "deepseek_v3"})"));
  EXPECT_EQ(deepseek.head_dim, 192);
  EXPECT_EQ(deepseek.rotary_begin, 128);
}

TEST(ConfigHeadsTest, AClassReadsItsOwnNameOfTheWidth) {
  EXPECT_EQ(Read(Config(R"({"model_type": "jetmoe", "kv_channels": 64})")).head_dim, 64);
  ExpectRefused(Config(R"({"model_type": "llama", "kv_channels": 64})"),
                "kv_channels: 64 contradicts head_dim 128");
}

TEST(ConfigHeadsTest, AWidthThatDoesNotDivideIsRefused) {
  ExpectRefused(Config(R"({"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3})"),
                "hidden_size 100 does not split evenly over 3 heads");
}

}  // namespace
}  // namespace phasor
