// SPDX-License-Identifier: Apache-2.0
// Tests the calls of `phasor bench`: which call a spec makes, its modes, and the check of an
// answer.
#include "client/cli/bench_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "client/testing/mock_connection.h"
#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Client Inproc() { return *Client::Connect("inproc:"); }

TEST(BenchTaskTest, RotarySpecsRotateHeadsAndOthersEncodeRows) {
  const auto rope =
      MakeBenchTask(Inproc(), {.spec = {.preset = "llama-2"}, .tokens = 3, .heads = 2});
  ASSERT_THAT(rope, IsOk());
  EXPECT_TRUE(rope->rotary);
  EXPECT_THAT(rope->tensor.shape, ElementsAre(3, 2, 128));
  EXPECT_EQ(rope->tensor_bytes, 3 * 2 * 128 * 4);
  EXPECT_EQ(rope->call_bytes(), 2 * rope->tensor_bytes);
  const auto rows = MakeBenchTask(
      Inproc(),
      {.spec = {.preset = "transformer", .dim = 8}, .tokens = 5, .dtype = Dtype::kFloat16});
  ASSERT_THAT(rows, IsOk());
  EXPECT_THAT(rows->tensor.shape, ElementsAre(5, 8));
  EXPECT_EQ(rows->call_bytes(), 5 * 8 * 2);
}

TEST(BenchTaskTest, WhatCannotBeAskedIsSaid) {
  const Spec rows = {.preset = "transformer", .dim = 8};
  EXPECT_THAT(MakeBenchTask(Inproc(), {.spec = {.preset = "nobody"}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("spec.preset")));
  EXPECT_THAT(MakeBenchTask(Inproc(), {.spec = rows, .mode = BenchMode::kChunks}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--mode: chunks")));
  EXPECT_THAT(MakeBenchTask(Inproc(), {.spec = {.preset = "llama-2"},
                                       .tokens = int64_t{1} << 40,
                                       .heads = int64_t{1} << 30}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--tokens")));
}

// Every convention of positions and every way to send.
TEST(BenchTaskTest, EveryModeCallsAgainAndAgain) {
  for (const Spec& spec : {Spec{.preset = "llama-2"}, Spec{.preset = "flux"},
                           Spec{.preset = "transformer", .dim = 8}}) {
    for (const BenchMode mode : {BenchMode::kUnary, BenchMode::kStream, BenchMode::kChunks}) {
      for (const Dtype dtype :
           {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
        const auto task = MakeBenchTask(
            Inproc(), {.spec = spec, .tokens = 3, .heads = 2, .dtype = dtype, .mode = mode});
        if (spec.dim == 8 && mode == BenchMode::kChunks) continue;
        ASSERT_THAT(task, IsOk()) << spec.preset << " " << ModeName(mode);
        EXPECT_THAT(CheckAnswer(Inproc(), *task), IsOk());
        const auto operations = BenchOperations(Inproc(), *task, 2);
        ASSERT_THAT(operations, IsOk());
        ASSERT_EQ(operations->size(), 2u);
        for (int i = 0; i < 4; ++i) {
          EXPECT_THAT((*operations)[static_cast<size_t>(i % 2)](), IsOk());
        }
      }
    }
  }
}

TEST(BenchTaskTest, AWrongAnswerIsNotTimed) {
  auto connection = std::make_shared<MockConnection>();
  EXPECT_CALL(*connection, Encode).WillOnce([](EncodeCall call, CallContext, auto done) {
    std::memset(call.output->data, 0, static_cast<size_t>(call.output->bytes));
    done(EncodeResult{});
  });
  const auto task = MakeBenchTask(Inproc(), {.spec = {.preset = "transformer", .dim = 8}});
  ASSERT_THAT(task, IsOk());
  EXPECT_THAT(CheckAnswer(Client(connection), *task),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("answer: not the bytes")));
}

}  // namespace
}  // namespace phasor::cli
