// SPDX-License-Identifier: Apache-2.0
#include "client/cli/cache/llama_state.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/llama_states.h"
#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::phasor::testing::LlamaCache;
using ::phasor::testing::LlamaSequenceData;
using ::phasor::testing::LlamaSequenceFile;
using ::phasor::testing::LlamaSessionFile;
using ::phasor::testing::LlamaStream;
using ::phasor::testing::Put;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<LlamaState> Parse(const std::string& file,
                                 std::optional<int64_t> sequence = std::nullopt) {
  return ParseLlamaState({reinterpret_cast<const std::byte*>(file.data()), file.size()}, sequence,
                         "f.state");
}

const LlamaStream kStream = {.cells = {{7, {0}}, {5, {0}}, {6, {0}}}};

// Every row of keys lies in the file, and slots are cells.
void ExpectInBounds(const LlamaState& state, const std::string& file) {
  for (const LlamaPart& part : state.parts) {
    ASSERT_EQ(part.slots.size(), part.positions.size());
    for (const int64_t slot : part.slots) {
      ASSERT_GE(slot, 0);
      ASSERT_LT(slot, part.cells);
    }
    for (const LlamaKeys& keys : part.layers) {
      const int64_t bytes = part.cells * (keys.lanes / UnitLanes(keys.code)) * UnitBytes(keys.code);
      ASSERT_GE(keys.offset_bytes, 0);
      ASSERT_LE(keys.offset_bytes, static_cast<int64_t>(file.size()) - bytes);
    }
  }
}

TEST(LlamaStateTest, CellsAreOrderedByPositionAndKeysAreFound) {
  const std::string file = LlamaSequenceFile(LlamaCache({kStream}));
  const auto state = Parse(file);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->architecture, "");
  EXPECT_EQ(state->rest_bytes, 0);
  ASSERT_EQ(state->parts.size(), 1u);
  const LlamaPart& part = state->parts[0];
  EXPECT_EQ(part.cells, 3);
  EXPECT_THAT(part.slots, ElementsAre(1, 2, 0));
  EXPECT_THAT(part.positions, ElementsAre(5, 6, 7));
  ASSERT_EQ(part.layers.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(part.layers[i].code, KeyCode::kFloat16);
    EXPECT_EQ(part.layers[i].lanes, 4);
    EXPECT_EQ(file.substr(static_cast<size_t>(part.layers[i].offset_bytes), 24),
              std::string(24, static_cast<char>('a' + i)));
  }
}

TEST(LlamaStateTest, EveryFileAndEveryFormOfCellsAndValuesIsRead) {
  for (const bool values : {true, false}) {
    for (const bool transposed : {true, false}) {
      for (const size_t extra : {0, 8, 12}) {
        LlamaStream stream = kStream;
        stream.values = values;
        stream.transposed = transposed;
        stream.extra = std::string(extra, '\x03');
        const std::string caches = LlamaCache({stream});
        for (const std::string& file : {LlamaSequenceFile(caches), LlamaSequenceData(caches),
                                        LlamaSessionFile(caches, "qwen")}) {
          EXPECT_TRUE(IsLlamaState({reinterpret_cast<const std::byte*>(file.data()), file.size()}));
          const auto state = Parse(file);
          ASSERT_TRUE(state.ok()) << state.status();
          EXPECT_EQ(state->rest_bytes, 0);
          EXPECT_THAT(state->parts[0].positions, ElementsAre(5, 6, 7));
          EXPECT_EQ(state->parts[0].layers.size(), 2u);
        }
      }
    }
  }
  EXPECT_EQ(Parse(LlamaSessionFile(LlamaCache({kStream}), "qwen"))->architecture, "qwen");
  EXPECT_FALSE(IsLlamaState({}));
}

TEST(LlamaStateTest, NewerFilesSayTheHadamardTransform) {
  for (const uint32_t lanes : {0u, 64u, 128u}) {
    for (const size_t extra : {0, 12}) {
      LlamaStream stream = kStream;
      stream.hadamard = lanes;
      stream.extra = std::string(extra, '\x03');
      const std::string caches = LlamaCache({stream});
      for (const std::string& file : {LlamaSequenceFile(caches, 4), LlamaSequenceData(caches),
                                      LlamaSessionFile(caches, "qwen", 11)}) {
        const auto state = Parse(file);
        ASSERT_TRUE(state.ok()) << state.status();
        EXPECT_EQ(state->rest_bytes, 0);
        EXPECT_EQ(state->parts[0].hadamard, lanes);
        EXPECT_THAT(state->parts[0].positions, ElementsAre(5, 6, 7));
      }
    }
  }
  EXPECT_EQ(Parse(LlamaSequenceFile(LlamaCache({kStream})))->parts[0].hadamard, std::nullopt);
  LlamaStream stream = kStream;
  stream.hadamard = 65;
  EXPECT_THAT(
      Parse(LlamaSequenceFile(LlamaCache({stream}), 4)).status(),
      StatusIs(testing::kInvalid, HasSubstr("transform of 65 lanes; must be 0 or a power")));
}

TEST(LlamaStateTest, EveryCodeHasItsLanes) {
  const std::tuple<int32_t, uint64_t, KeyCode, int64_t> types[] = {
      {0, 16, KeyCode::kFloat32, 4}, {30, 8, KeyCode::kBFloat16, 4}, {8, 68, KeyCode::kQ8_0, 64},
      {2, 36, KeyCode::kQ4_0, 64},   {3, 20, KeyCode::kQ4_1, 32},    {6, 22, KeyCode::kQ5_0, 32},
      {7, 24, KeyCode::kQ5_1, 32}};
  for (const auto& [type, row_bytes, code, lanes] : types) {
    LlamaStream stream = kStream;
    stream.type = type;
    stream.row_bytes = row_bytes;
    const auto state = Parse(LlamaSequenceFile(LlamaCache({stream})));
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->parts[0].layers[0].code, code);
    EXPECT_EQ(state->parts[0].layers[0].lanes, lanes);
  }
}

TEST(LlamaStateTest, SequencesAreChosenAmongCellsAndStreams) {
  const LlamaStream shared = {.cells = {{0, {0, 2}}, {1, {0}}, {1, {2}}}};
  const std::string file = LlamaSessionFile(LlamaCache({shared}), "llama");
  EXPECT_THAT(
      Parse(file).status(),
      StatusIs(testing::kInvalid, HasSubstr("f.state: holds sequences 0, 2; must be chosen")));
  EXPECT_THAT(Parse(file, 1).status(),
              StatusIs(testing::kInvalid, HasSubstr("has no sequence 1; must be one of 0, 2")));
  EXPECT_THAT(Parse(file, 2)->parts[0].slots, ElementsAre(0, 2));
  const std::string streams =
      LlamaSessionFile(LlamaCache({{}, {.cells = {{4, {1}}}}, {.cells = {{9, {2}}}}}), "llama");
  EXPECT_THAT(Parse(streams, 1)->parts[0].positions, ElementsAre(4));
  EXPECT_THAT(Parse(streams, 2)->parts[0].positions, ElementsAre(9));
}

TEST(LlamaStateTest, ASecondCacheIsASecondPartAndOtherThingsAreLeft) {
  LlamaStream window = kStream;
  window.layers = 3;
  const std::string both = LlamaCache({kStream}) + LlamaCache({window});
  const auto state = Parse(LlamaSequenceFile(both));
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(state->parts.size(), 2u);
  EXPECT_EQ(state->parts[1].layers.size(), 3u);
  const auto more = Parse(LlamaSequenceFile(LlamaCache({kStream}) + "a recurrent state"));
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(more->parts.size(), 1u);
  EXPECT_EQ(more->rest_bytes, 17);
}

TEST(LlamaStateTest, OtherVersionsTypesAndSizesAreRefusedByName) {
  const std::string caches = LlamaCache({kStream});
  EXPECT_THAT(Parse(LlamaSequenceFile(caches, 2)).status(),
              StatusIs(testing::kInvalid, HasSubstr("state of version 2; must be 3 or 4")));
  LlamaStream stream = kStream;
  stream.type = 20;
  EXPECT_THAT(Parse(LlamaSequenceFile(LlamaCache({stream}))).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("f.state: keys of layer 0 have ggml type 20; must be f32")));
  stream.type = 8;
  EXPECT_THAT(Parse(LlamaSequenceFile(LlamaCache({stream}))).status(),
              StatusIs(testing::kInvalid, HasSubstr("rows of 8 bytes; must be a multiple of 34")));
  EXPECT_THAT(Parse(LlamaSequenceFile(LlamaCache({{}}))).status(),
              StatusIs(testing::kInvalid, HasSubstr("has no cells")));
  EXPECT_THAT(Parse(LlamaSequenceFile("")).status(),
              StatusIs(testing::kInvalid, HasSubstr("ends")));
}

TEST(LlamaStateTest, CountsBeyondTheFileAllocateNothing) {
  std::string file;
  for (const uint32_t value : {0xaf143cd8u, 0u, 1u, 0xffffffffu}) Put(value, &file);
  EXPECT_THAT(Parse(file).status(), StatusIs(testing::kInvalid, HasSubstr("ends in its cells")));
  std::string tokens;
  for (const uint32_t value : {0x67677371u, 3u, 0xffffffffu}) Put(value, &tokens);
  EXPECT_THAT(Parse(tokens).status(), StatusIs(testing::kInvalid, HasSubstr("ends in its head")));
}

TEST(LlamaStateTest, FilesThatEndAnywhereAreRefusedOrHaveWholeKeys) {
  const std::string whole = LlamaSessionFile(LlamaCache({kStream}), "llama");
  const int64_t end_of_keys = Parse(whole)->parts[0].layers.back().offset_bytes + 3 * 8;
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    const auto state = Parse(cut);
    EXPECT_EQ(state.ok(), static_cast<int64_t>(size) >= end_of_keys) << size;
    if (state.ok()) {
      ExpectInBounds(*state, cut);
    } else {
      EXPECT_THAT(state.status(), StatusIs(testing::kInvalid, HasSubstr("f.state: ")));
    }
  }
}

TEST(LlamaStateTest, ChangedFilesAreRefusedOrStayInBounds) {
  std::mt19937 random(1);
  const std::string files[] = {
      LlamaSequenceFile(LlamaCache({kStream, {}, kStream}) + LlamaCache({kStream})),
      LlamaSessionFile(LlamaCache({kStream}), "llama"), LlamaSequenceData(LlamaCache({kStream}))};
  int accepted = 0;
  for (int run = 0; run < 20000; ++run) {
    std::string file = files[static_cast<size_t>(run) % 3];
    for (uint32_t change = random() % 3 + 1; change > 0; --change) {
      const size_t at = random() % file.size();
      if (random() % 4 == 0 && at + 4 <= file.size()) {
        file.replace(at, 4,
                     random() % 2 == 0 ? std::string("\xff\xff\xff\xff") : std::string(4, '\0'));
      } else {
        file[at] = static_cast<char>(random());
      }
    }
    const auto state = Parse(file, random() % 2 == 0 ? std::optional<int64_t>(0) : std::nullopt);
    if (!state.ok()) continue;
    ++accepted;
    ExpectInBounds(*state, file);
  }
  EXPECT_GT(accepted, 100);  // otherwise this looks at refusals only
}

}  // namespace
}  // namespace phasor::cli
