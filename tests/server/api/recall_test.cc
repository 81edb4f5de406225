// SPDX-License-Identifier: Apache-2.0
// Tests that a message like one that was just checked comes to what parsing it would give, whatever
// is changed in it, and that nothing is recalled whose meaning may have changed.
#include "server/api/recall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/server/api/remembering.h"
#include "tests/support/requests.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::EncodeOf;
using ::phasor::testing::EncodeRequestOf;
using ::phasor::testing::RopeOf;
using ::phasor::testing::RopeRequestOf;
using ::phasor::testing::SetShape;
using ::testing::HasSubstr;

// Adds an Encode of `count` positions to a batch, and returns their range.
v1::IntegerRange* AddEncode(int64_t start, int64_t count, v1::BatchEncodeRequest* batch) {
  v1::EncodeItem& item = *batch->add_items();
  item = EncodeOf(count);
  v1::IntegerRange* const range = item.mutable_positions()->mutable_range()->mutable_integer();
  range->set_start(start);
  return range;
}

std::vector<KnownMessage> KnownMessages() {
  v1::EncodeRequest positions = EncodeRequestOf(2);
  SetShape(positions.mutable_item()->mutable_positions()->mutable_tensor(), v1::DTYPE_INT32, {2});
  positions.add_raw("12345678");
  v1::EncodeRequest ragged = EncodeRequestOf(2);
  auto* sequences = ragged.mutable_item()->mutable_positions()->mutable_ragged();
  for (const int64_t length : {2, 0, 3}) sequences->add_lengths(length);
  v1::EncodeRequest pinned = EncodeRequestOf(1);
  pinned.mutable_item()->mutable_pins()->set_backend("cpu");
  v1::BatchEncodeRequest encodes;
  for (const int64_t count : {1, 3, 1}) *encodes.add_items() = EncodeOf(count);
  v1::BatchEncodeRequest like_encodes;
  for (const int64_t count : {2, 2, 2, 1, 1}) AddEncode(300 * count, count, &like_encodes);
  v1::BatchApplyRoPERequest ropes;
  for (const int64_t tokens : {2, 1}) {
    const v1::ApplyRoPERequest rope = RopeRequestOf(tokens);
    *ropes.add_items() = rope.item();
    ropes.mutable_raw()->MergeFrom(rope.raw());
  }
  v1::StreamEncodeRequest streamed;
  streamed.set_id(7);
  *streamed.mutable_item() = EncodeOf(1);
  v1::StreamApplyRoPERequest streamed_rope;
  *streamed_rope.mutable_item() = RopeOf(1);
  streamed_rope.mutable_raw()->MergeFrom(RopeRequestOf(1).raw());
  return {{ParseEncode, EncodeRequestOf(3).SerializeAsString()},
          {ParseEncode, positions.SerializeAsString()},
          {ParseEncode, ragged.SerializeAsString()},
          {ParseEncode, pinned.SerializeAsString()},
          {ParseApplyRoPE, RopeRequestOf(2).SerializeAsString()},
          {ParseBatchEncode, encodes.SerializeAsString()},
          {ParseBatchEncode, like_encodes.SerializeAsString()},
          {ParseBatchApplyRoPE, ropes.SerializeAsString()},
          {Streamed(ParseStreamEncode), streamed.SerializeAsString()},
          {Streamed(ParseStreamApplyRoPE), streamed_rope.SerializeAsString()}};
}

TEST(RecallTest, ARepeatedMessageIsRecalledAndMeansTheSame) {
  for (const KnownMessage& message : KnownMessages()) ExpectRecalled(message, {});
}

TEST(RecallTest, OtherPositionsAndPayloadAreThoseOfTheNewMessage) {
  Remembering server;
  v1::EncodeRequest encode = EncodeRequestOf(3);
  v1::ApplyRoPERequest rope = RopeRequestOf(2);
  server.Read(ParseEncode, encode.SerializeAsString());
  server.Read(ParseApplyRoPE, rope.SerializeAsString());
  encode.mutable_item()->mutable_positions()->mutable_range()->mutable_integer()->set_start(-9);
  encode.mutable_item()->mutable_positions()->mutable_range()->mutable_integer()->set_count(5);
  rope.mutable_item()->mutable_positions()->mutable_range()->mutable_real()->set_start(0.5);
  rope.mutable_item()->mutable_positions()->mutable_range()->mutable_real()->set_count(2);
  rope.set_raw(0, std::string(128, 'Q'));
  for (const auto& [parse, bytes] :
       {std::pair<ViewParser, std::string>(ParseEncode, encode.SerializeAsString()),
        {ParseApplyRoPE, rope.SerializeAsString()}}) {
    const std::string text = server.Read(parse, bytes);
    EXPECT_EQ(server.recalled(), 1);
    EXPECT_EQ(text, server.Anew(parse, bytes));
  }
}

TEST(RecallTest, EncodesOfABatchThatDifferInTheStartOfTheirRangeBecomeOne) {
  constexpr int64_t kFirst = INT64_MIN, kLast = INT64_MAX;
  using Batch = v1::BatchEncodeRequest;
  const std::vector<std::pair<std::function<void(Batch*)>, std::vector<size_t>>> cases = {
      {[](Batch* b) {
         for (int64_t s : {7, 0, -5, 7}) AddEncode(s, 3, b);
       },
       {4}},
      {[](Batch* b) {
         for (int64_t s : {kFirst, kLast, kFirst}) AddEncode(s, 1, b);
       },
       {3}},
      {[](Batch* b) {
         for (int64_t count : {2, 2, 3, 1, 1}) AddEncode(5, count, b);
       },
       {2, 1, 2}},
      {[](Batch* b) {
         for (int i = 0; i < 3; ++i) AddEncode(9, 0, b);
       },
       {3}},
      // A step other than one matters if there are several positions.
      {[](Batch* b) {
         for (int i = 0; i < 3; ++i) AddEncode(i, 1, b)->set_step(i);
       },
       {3}},
      {[](Batch* b) {
         for (int i = 0; i < 3; ++i) AddEncode(i, 2, b)->set_step(i);
       },
       {1, 1, 1}},
      {[](Batch* b) {
         for (int i = 0; i < 4; ++i) AddEncode(i, 1, b);
         b->mutable_items(1)->set_output_dtype(v1::DTYPE_BFLOAT16);
       },
       {1, 1, 2}},
      {[](Batch* b) {
         for (int i = 0; i < 4; ++i) AddEncode(i, 2, b);
         b->mutable_items(2)->mutable_positions()->mutable_range()->mutable_real()->set_count(2);
       },
       {2, 1, 1}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    Remembering server;
    Batch batch;
    cases[i].first(&batch);
    const std::string bytes = batch.SerializeAsString();
    server.Read(ParseBatchEncode, bytes);
    const std::string text = server.Read(ParseBatchEncode, bytes);
    EXPECT_EQ(server.recalled(), batch.items_size()) << i;
    EXPECT_THAT(server.parts(), ::testing::ElementsAreArray(cases[i].second)) << i;
    EXPECT_EQ(text, server.Anew(ParseBatchEncode, bytes)) << i;
  }
}

TEST(RecallTest, AWrongRangeAmongLikeEncodesIsTheErrorOfItsItem) {
  Remembering server;
  v1::BatchEncodeRequest batch;
  for (int i = 0; i < 3; ++i) AddEncode(i, 2, &batch);
  server.Read(ParseBatchEncode, batch.SerializeAsString());
  batch.mutable_items(1)->mutable_positions()->mutable_range()->mutable_integer()->set_start(
      INT64_MAX);
  const std::string text = server.Read(ParseBatchEncode, batch.SerializeAsString());
  EXPECT_EQ(text, server.Anew(ParseBatchEncode, batch.SerializeAsString()));
  EXPECT_THAT(text, ::testing::HasSubstr("items[1].positions"));
  EXPECT_THAT(server.parts(), ::testing::ElementsAre(1, 1, 1));
}

TEST(RecallTest, TheSizeOfTheResponseCountsEveryPart) {
  for (int64_t limit = 4000; limit < 20000; limit += 16) {
    Remembering server;
    server.max_message_bytes = limit;
    v1::BatchEncodeRequest batch;
    for (int i = 0; i < 7; ++i) AddEncode(i, 4, &batch);
    v1::BatchEncodeRequest one;
    AddEncode(0, 4, &one);
    server.Read(ParseBatchEncode, one.SerializeAsString());
    ASSERT_EQ(server.Read(ParseBatchEncode, batch.SerializeAsString()),
              server.Anew(ParseBatchEncode, batch.SerializeAsString()))
        << limit;
  }
}

TEST(RecallTest, WhateverIsChangedInAMessageItMeansWhatParsingItGives) {
  ExpectTheSameHoweverChanged(KnownMessages(), {});
}

// A message whose item has its fields in another order, or twice, is what the parser makes of it.
TEST(RecallTest, FieldsInAnotherOrderOrTwiceMeanWhatTheParserMakesOfThem) {
  Remembering server;
  const v1::EncodeItem item = EncodeOf(3);
  v1::EncodeItem positions, rest = item;
  *positions.mutable_positions() = item.positions();
  rest.clear_positions();
  const auto message = [](const std::string& bytes) {
    std::string text;
    AppendFieldPrefix(1, bytes.size(), &text);
    return text + bytes;
  };
  const std::string p = positions.SerializeAsString(), r = rest.SerializeAsString();
  const auto expect = [&](const std::string& bytes, int64_t recalled) {
    const std::string anew = server.Anew(ParseEncode, bytes);
    EXPECT_EQ(server.Read(ParseEncode, bytes), anew);
    EXPECT_EQ(server.recalled(), recalled) << ::testing::PrintToString(bytes);
  };
  expect(message(r + p), 0);
  expect(message(p + r), 1);  // positions may stand anywhere
  expect(message(p + p + r), 0);
  expect(message(r), 0);
  expect(message(p + r) + message(r), 0);
  expect(message(p + r + r), 0);
  expect(message(p + r + r), 1);
}

// Unknown fields may nest as deep inside positions as inside the whole message, and no deeper.
TEST(RecallTest, PositionsThatNestTooDeepAreRefused) {
  for (int depth = 90; depth < 104; ++depth) {
    Remembering server;
    v1::EncodeRequest request = EncodeRequestOf(1);
    server.Read(ParseEncode, request.SerializeAsString());
    std::string groups;
    for (int i = 0; i < depth; ++i) groups += "\x7B";  // group 15 begins
    for (int i = 0; i < depth; ++i) groups += "\x7C";
    const std::string bytes = request.item().positions().SerializeAsString() + groups;
    v1::EncodeItem rest = request.item();
    rest.clear_positions();
    std::string item = rest.SerializeAsString();
    AppendFieldPrefix(2, bytes.size(), &item);
    item += bytes;
    std::string message;
    AppendFieldPrefix(1, item.size(), &message);
    message += item;
    EXPECT_EQ(server.Read(ParseEncode, message), server.Anew(ParseEncode, message)) << depth;
  }
}

// With other positions, more than those would have to be checked again.
TEST(RecallTest, WhatOtherTensorsDependOnIsRecalledForTheSamePositions) {
  v1::EncodeRequest added = EncodeRequestOf(2);
  SetShape(added.mutable_item()->mutable_add_to(), v1::DTYPE_FLOAT32, {2, 8});
  added.add_raw(std::string(64, 'e'));
  v1::ApplyRoPERequest moved = RopeRequestOf(2);
  moved.mutable_item()->set_direction(v1::DIRECTION_DELTA);
  moved.mutable_item()->mutable_from_positions()->mutable_range()->mutable_integer()->set_count(2);
  const auto expect = [](const ViewParser& parse, auto request) {
    Remembering server;
    const std::string first = server.Read(parse, request.SerializeAsString());
    EXPECT_EQ(server.Read(parse, request.SerializeAsString()), first);
    EXPECT_EQ(server.recalled(), 1) << first;
    for (const int count : {2, 3}) {
      auto& range = *request.mutable_item()->mutable_positions()->mutable_range();
      range.mutable_integer()->set_start(5);
      range.mutable_integer()->set_count(count);
      EXPECT_EQ(server.Read(parse, request.SerializeAsString()),
                server.Anew(parse, request.SerializeAsString()));
      EXPECT_EQ(server.recalled(), 0) << first;
    }
  };
  expect(ParseEncode, added);
  expect(ParseApplyRoPE, moved);
}

TEST(RecallTest, LargePlansAreNotRecalled) {
  v1::EncodeRequest wide = EncodeRequestOf(1);
  wide.mutable_item()->mutable_spec()->set_dim(1 << 14);
  Remembering server;
  const std::string first = server.Read(ParseEncode, wide.SerializeAsString());
  EXPECT_EQ(server.Read(ParseEncode, wide.SerializeAsString()), first);
  EXPECT_EQ(server.recalled(), 0) << first;
}

TEST(RecallTest, AnEncoderMeansWhatTheConfigurationSaysNow) {
  Remembering server;
  v1::EncodeRequest request = EncodeRequestOf(1);
  request.mutable_item()->mutable_spec()->clear_preset();
  request.mutable_item()->mutable_spec()->set_encoder("text");
  std::vector<std::string> texts;
  for (const char* const preset : {"transformer", "timestep-sin-cos"}) {
    server.encoders.Replace(*EncoderSet::Make({{"text", {.preset = preset, .dim = 8}}}));
    for (int i = 0; i < 2; ++i) {
      texts.push_back(server.Read(ParseEncode, request.SerializeAsString()));
      EXPECT_EQ(server.recalled(), 0);
    }
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0], texts[2]);
  EXPECT_EQ(texts[2], texts[3]);
}

TEST(RecallTest, SoDoesAnEncoderOfThePositionsBefore) {
  Remembering server;
  v1::ApplyRoPERequest request = RopeRequestOf(2);
  request.mutable_item()->set_direction(v1::DIRECTION_DELTA);
  request.mutable_item()->mutable_from_positions()->mutable_range()->mutable_integer()->set_count(
      2);
  request.mutable_item()->mutable_from_spec()->set_encoder("before");
  server.encoders.Replace(
      *EncoderSet::Make({{"before", {.preset = "rope-half-split", .head_dim = 8}}}));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(server.Read(ParseApplyRoPE, request.SerializeAsString()), HasSubstr(" in "));
    EXPECT_EQ(server.recalled(), 0);
  }
}

TEST(RecallTest, TheSizeOfTheResponseIsCheckedEveryTime) {
  Remembering server;
  const std::string bytes = EncodeRequestOf(300).SerializeAsString();
  server.Read(ParseEncode, bytes);
  server.max_message_bytes = 9000;  // the rows have 9600
  const std::string anew = server.Anew(ParseEncode, bytes);
  EXPECT_EQ(server.Read(ParseEncode, bytes), anew);
  EXPECT_EQ(server.recalled(), 0);
}

TEST(RecallTest, ABatchWithMoreItemsThanAllowedIsRefused) {
  Remembering server;
  v1::BatchEncodeRequest batch;
  for (int i = 0; i < 8; ++i) *batch.add_items() = EncodeOf(1);
  server.Read(ParseBatchEncode, batch.SerializeAsString());
  server.Read(ParseBatchEncode, batch.SerializeAsString());
  EXPECT_EQ(server.recalled(), 8);
  *batch.add_items() = EncodeOf(1);
  const std::string anew = server.Anew(ParseBatchEncode, batch.SerializeAsString());
  EXPECT_EQ(server.Read(ParseBatchEncode, batch.SerializeAsString()), anew);
  EXPECT_EQ(server.recalled(), 0);
}

TEST(ItemsOfTest, MessagesWithOtherFieldsHaveNoItems) {
  EXPECT_EQ(ItemsOf("\x0A\x01x\x0A\x02yz").size(), 2u);
  EXPECT_TRUE(ItemsOf("").empty());
  EXPECT_TRUE(ItemsOf("\x0A\x01x\x10\x01").empty());
  EXPECT_TRUE(ItemsOf("\x0A\x02x").empty());
}

TEST(StreamedItemOfTest, FindsTheIdAndTheItem) {
  const auto message = StreamedItemOf("\x08\x07\x12\x01x");
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->id, 7);
  EXPECT_EQ(message->item, "x");
  EXPECT_FALSE(StreamedItemOf("\x08\x07").has_value());            // no item
  EXPECT_FALSE(StreamedItemOf("\x12\x01x\x12\x01y").has_value());  // two
  EXPECT_FALSE(StreamedItemOf("\x12\x01x\x20\x01").has_value());   // chunked
  EXPECT_FALSE(StreamedItemOf("\x0A\x01i\x12\x01x").has_value());  // an id of another type
}

}  // namespace
}  // namespace phasor::rpc
