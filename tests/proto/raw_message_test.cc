// SPDX-License-Identifier: Apache-2.0
// Tests that the codec reads the same message however it is cut, copies no payload, refuses what is
// not a sequence of fields, and writes what protobuf writes.
#include "proto/raw_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/requests.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using ::phasor::testing::kInvalid;

using Piece = absl::Span<const std::byte>;

Piece PieceOf(const std::string& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// Pieces of `size` bytes, with empty ones between.
std::vector<Piece> Cut(const std::string& bytes, size_t size) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < bytes.size(); i += size) {
    pieces.push_back(PieceOf(bytes).subspan(i, size));
    pieces.emplace_back();
  }
  return pieces;
}

absl::StatusOr<WalkedMessage> Walk(const std::string& bytes, const WalkLimits& limits = {}) {
  return WalkMessage({PieceOf(bytes)}, limits);
}

std::string JoinedBytes(const PieceList& entry) {
  std::string bytes(static_cast<size_t>(PieceBytes(entry)), '?');
  CopyPieces(entry, reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

// The message without `raw`, serialized.
std::string HeaderOf(v1::ApplyRoPERequest request) {
  request.clear_raw();
  return request.SerializeAsString();
}

TEST(RawMessageTest, SplitsHeaderFromRawHoweverTheBytesAreCut) {
  v1::ApplyRoPERequest request = testing::RopeRequestOf(3);
  request.add_raw("");
  const std::string bytes = request.SerializeAsString();
  for (size_t size = 1; size <= bytes.size(); ++size) {
    const auto walked = WalkMessage(Cut(bytes, size), {});
    ASSERT_THAT(walked, IsOk()) << size;
    EXPECT_EQ(walked->header, HeaderOf(request)) << size;
    ASSERT_EQ(walked->raw.size(), 3u) << size;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(JoinedBytes(walked->raw[i]), request.raw(i)) << size;
  }
}

TEST(RawMessageTest, AnotherProtocolHasItsRawFieldElsewhere) {
  const std::string bytes = "\x3A\x02xy\x7A\x01z";  // fields 7 and 15
  const auto walked = Walk(bytes, {1 << 20, 8, /*raw_field=*/7});
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, "\x7A\x01z");
  ASSERT_EQ(walked->raw.size(), 1u);
  EXPECT_EQ(JoinedBytes(walked->raw[0]), "xy");
}

TEST(RawMessageTest, RawIsBorrowedAndNotCopied) {
  const std::string bytes = testing::RopeRequestOf(100).SerializeAsString();
  const auto walked = Walk(bytes);
  ASSERT_THAT(walked, IsOk());
  for (const PieceList& entry : walked->raw) {
    ASSERT_EQ(entry.size(), 1u);
    const auto* data = reinterpret_cast<const char*>(entry[0].data());
    EXPECT_GE(data, bytes.data());
    EXPECT_LE(data + entry[0].size(), bytes.data() + bytes.size());
  }
}

TEST(RawMessageTest, RawMayComeBeforeAndBetweenOtherFields) {
  const std::string item = HeaderOf(testing::RopeRequestOf(3));
  const std::string bytes = "\x7A\x02xy" + item + "\x7A\x01z";
  const auto walked = Walk(bytes);
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, item);
  ASSERT_EQ(walked->raw.size(), 2u);
  EXPECT_EQ(JoinedBytes(walked->raw[0]), "xy");
  EXPECT_EQ(JoinedBytes(walked->raw[1]), "z");
}

TEST(RawMessageTest, KeepsUnknownFieldsOfEveryWireTypeInTheHeader) {
  const std::string fields = std::string("\xA0\x06\x96\x01", 4) +       // 100: varint
                             std::string("\xA1\x06", 2) + "12345678" +  // 100: fixed64
                             std::string("\xA2\x06\x03", 3) + "abc" +   // 100: bytes
                             std::string("\xA5\x06", 2) + "1234";       // 100: fixed32
  const auto walked = Walk(fields);
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, fields);
  EXPECT_THAT(walked->raw, IsEmpty());
}

TEST(RawMessageTest, EmptyMessageIsAnEmptyHeader) {
  const auto walked = WalkMessage({}, {});
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, "");
  EXPECT_THAT(walked->raw, IsEmpty());
}

TEST(RawMessageTest, NonCanonicalVarintsOfARawLengthAreAccepted) {
  const std::string bytes("\x7A\x82\x80\x00xy", 6);  // 2 in three bytes
  const auto walked = Walk(bytes);
  ASSERT_THAT(walked, IsOk());
  ASSERT_EQ(walked->raw.size(), 1u);
  EXPECT_EQ(JoinedBytes(walked->raw[0]), "xy");
}

// Whether the generated parser takes the message.
bool Parses(const std::string& bytes) { return v1::ApplyRoPERequest().ParseFromString(bytes); }

TEST(RawMessageTest, RawOfAnotherWireTypeIsAnUnknownField) {
  for (const std::string& bytes : {std::string("\x78\x05"),           // a varint
                                   std::string("\x79") + "12345678",  // a fixed64
                                   std::string("\x7D") + "1234",      // a fixed32
                                   std::string("\x7B\x7C")}) {        // a group
    const auto walked = Walk(bytes);
    ASSERT_THAT(walked, IsOk());
    EXPECT_EQ(walked->header, bytes);
    EXPECT_THAT(walked->raw, IsEmpty());
    EXPECT_TRUE(Parses(bytes));
  }
}

TEST(RawMessageTest, GroupsAreUnknownFieldsAndHideWhatLooksLikeRaw) {
  const std::string group = "\x0B\x7A\x02xy\x13\x14\x0C";
  const std::string bytes = group + "\x7A\x01z";
  const auto walked = Walk(bytes);
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, group);
  ASSERT_EQ(walked->raw.size(), 1u);
  EXPECT_EQ(JoinedBytes(walked->raw[0]), "z");
  const std::string deep = std::string(100, '\x0B') + std::string(100, '\x0C');
  EXPECT_THAT(Walk(deep), IsOk());
  EXPECT_TRUE(Parses(deep));
}

// As the generated parser drops them.
TEST(RawMessageTest, BitsBeyondANumbersTypeAreDropped) {
  const std::string tag = "\xFA\x80\x80\x80\x70\x01z";  // raw, and the bits above the 32nd
  auto walked = Walk(tag);
  ASSERT_THAT(walked, IsOk());
  ASSERT_EQ(walked->raw.size(), 1u);
  EXPECT_EQ(JoinedBytes(walked->raw[0]), "z");
  v1::ApplyRoPERequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(tag));
  EXPECT_EQ(parsed.raw_size(), 1);

  const std::string value = "\xA0\x06" + std::string(9, '\xFF') + "\x7F";
  walked = Walk(value);
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, value);
  EXPECT_TRUE(Parses(value));
}

TEST(RawMessageTest, ErrorsNameTheSubject) {
  EXPECT_THAT(Walk("\x0C", {.subject = "response"}),
              StatusIs(kInvalid, ::testing::StartsWith("response: ")));
}

struct Malformed {
  std::string name;
  std::string bytes;
  std::string message;
};

class MalformedTest : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedTest, IsInvalidArgument) {
  EXPECT_THAT(Walk(GetParam().bytes),
              StatusIs(kInvalid, AllOf(HasSubstr("request: "), HasSubstr(GetParam().message))));
  // The same when every byte comes alone.
  EXPECT_THAT(WalkMessage(Cut(GetParam().bytes, 1), {}),
              StatusIs(kInvalid, HasSubstr(GetParam().message)));
  EXPECT_FALSE(Parses(GetParam().bytes));
}

INSTANTIATE_TEST_SUITE_P(
    Messages, MalformedTest,
    ::testing::Values(
        Malformed{"TruncatedTag", "\x80", "not a varint"},
        Malformed{"TagOfElevenBytes", std::string(11, '\x80'), "not a varint"},
        Malformed{"TagBeyond64Bits", std::string(9, '\xFF') + "\x02", "not a varint"},
        Malformed{"TagBeyond32Bits", "\x82\x80\x80\x80\x10", "field number"},
        Malformed{"FieldZero", std::string("\x02\x00", 2), "field number 0"},
        Malformed{"TruncatedVarint", "\x08\xFF", "not a varint"},
        Malformed{"TruncatedFixed64",
                  "\x09"
                  "1234567",
                  "truncated: a field of 8 bytes"},
        Malformed{"TruncatedFixed32",
                  "\x0D"
                  "123",
                  "truncated: a field of 4 bytes"},
        Malformed{"NoLength", "\x0A", "not a varint"},
        Malformed{"LengthBeyondTheEnd",
                  "\x0A\x05"
                  "abcd",
                  "truncated: a field of 5 bytes"},
        Malformed{"RawBeyondTheEnd",
                  "\x7A\x05"
                  "abcd",
                  "truncated: a field of 5 bytes"},
        Malformed{"RawOf3GiBWith10Bytes",
                  "\x7A\x80\x80\x80\x80\x0C"
                  "0123456789",
                  "truncated: a field of 3221225472 bytes"},
        Malformed{"RawOf2To64",
                  "\x7A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"
                  "ab",
                  "truncated: a field of 18446744073709551615 bytes"},
        Malformed{"RawLengthOfSixBytes", std::string("\x7A\x81\x80\x80\x80\x80\x00x", 8),
                  "a length of 1 before byte 7"},
        Malformed{"RawAsGroupWithoutEnd", "\x7B", "group 15 has no end"},
        Malformed{"RawAsGroupEnd", "\x7C", "field 15 has wire type 4"},
        Malformed{"Group", "\x0B", "group 1 has no end"},
        Malformed{"GroupWithAnotherEnd", "\x0B\x14", "field 2 has wire type 4"},
        Malformed{"FieldZeroInAGroup", std::string("\x0B\x00\x0C", 3), "field number 0"},
        Malformed{"GroupsTooDeep", std::string(101, '\x0B') + std::string(101, '\x0C'),
                  "too many groups"},
        Malformed{"GroupEnd", "\x0C", "field 1 has wire type 4"},
        Malformed{"WireType6", "\x0E", "field 1 has wire type 6"},
        Malformed{"WireType7", "\x0F", "field 1 has wire type 7"}),
    [](const auto& test) { return test.param.name; });

TEST(RawMessageLimitTest, HeaderUpToTheLimitPassesAndOneMoreByteDoesNot) {
  const std::string field =
      "\x0A\x04"
      "abcd";
  EXPECT_THAT(Walk(field, {.max_header_bytes = 6}), IsOk());
  for (const int64_t limit : {5, 1, 0}) {
    EXPECT_THAT(Walk(field, {.max_header_bytes = limit}),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("metadata")));
  }
}

TEST(RawMessageLimitTest, RawBytesDoNotCountAgainstTheHeader) {
  EXPECT_THAT(Walk("\x7A\x04"
                   "abcd",
                   {.max_header_bytes = 0}),
              IsOk());
}

TEST(RawMessageLimitTest, RawEntriesUpToTheLimitPassAndOneMoreDoesNot) {
  const std::string entries("\x7A\x00\x7A\x00\x7A\x00", 6);
  EXPECT_THAT(Walk(entries, {.max_raw_entries = 3}), IsOk());
  EXPECT_THAT(Walk(entries, {.max_raw_entries = 2}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("raw: too many entries")));
}

std::string TextOf(const MessageParts& parts) {
  std::string text;
  for (const MessagePart& part : parts) {
    text += part.text;
    text.append(reinterpret_cast<const char*>(part.entry.data()), part.entry.size());
  }
  return text;
}

TEST(JoinMessageTest, WritesWhatProtobufWritesAndBorrowsWhatIsLarge) {
  v1::ApplyRoPERequest whole = testing::RopeRequestOf(3);
  const std::string header = HeaderOf(whole);
  const std::string entries[] = {"", std::string(100, 'a'), std::string(101, 'b'),
                                 std::string(1 << 15, 'c'), "d"};
  std::vector<Piece> pieces;
  whole.clear_raw();
  for (const std::string& entry : entries) {
    pieces.push_back(PieceOf(entry));
    whole.add_raw(entry);
  }
  const MessageParts parts = JoinMessage(header, kRawField, pieces, /*copied_bytes=*/100);
  EXPECT_EQ(TextOf(parts), whole.SerializeAsString());
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(static_cast<const void*>(parts[0].entry.data()), entries[2].data());
  EXPECT_EQ(static_cast<const void*>(parts[1].entry.data()), entries[3].data());
  EXPECT_THAT(parts[2].entry, IsEmpty());
}

TEST(JoinMessageTest, HeaderAloneIsOnePartOfText) {
  for (const std::string header : {"", "\x08\x01"}) {
    const MessageParts parts = JoinMessage(header, kRawField, {}, 0);
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(parts[0].text, header);
    EXPECT_THAT(parts[0].entry, IsEmpty());
  }
}

TEST(FieldBytesTest, FieldsHaveTheBytesThatAreCounted) {
  for (const uint32_t field : {1u, 15u, 16u, (1u << 29) - 1}) {
    for (const size_t bytes :
         {size_t{0}, size_t{127}, size_t{128}, size_t{16383}, size_t{16384}, size_t{1} << 40}) {
      std::string prefix;
      AppendFieldPrefix(field, bytes, &prefix);
      EXPECT_EQ(FieldBytes(field, bytes), static_cast<int64_t>(prefix.size() + bytes));
    }
  }
  std::string prefix;
  AppendFieldPrefix(15, 300, &prefix);
  EXPECT_EQ(prefix, "\x7A\xAC\x02");
}

// Fields of messages in one piece -------------------------------------------------------------

TEST(TakePlainFieldTest, TakesFieldsInOrder) {
  const std::string bytes(
      "\x08\x96\x01\x12\x02xy\x1D"
      "abcd"
      "\x21"
      "abcdefgh",
      21);
  std::string_view rest = bytes;
  auto field = TakePlainField(&rest);
  ASSERT_TRUE(field.has_value());
  EXPECT_EQ(field->number, 1u);
  EXPECT_EQ(field->kind, PlainField::Kind::kVarint);
  EXPECT_EQ(field->varint, 150u);
  field = TakePlainField(&rest);
  ASSERT_TRUE(field.has_value());
  EXPECT_TRUE(field->IsBytes(2));
  EXPECT_FALSE(field->IsBytes(3));
  EXPECT_EQ(field->value, "xy");
  field = TakePlainField(&rest);
  ASSERT_TRUE(field.has_value());
  EXPECT_EQ(field->number, 3u);
  EXPECT_EQ(field->kind, PlainField::Kind::kFixed);
  EXPECT_EQ(field->value, "abcd");
  field = TakePlainField(&rest);
  ASSERT_TRUE(field.has_value());
  EXPECT_EQ(field->value, "abcdefgh");
  EXPECT_TRUE(rest.empty());
  EXPECT_FALSE(TakePlainField(&rest).has_value());
}

TEST(TakePlainFieldTest, LeavesOtherFormsToTheParser) {
  for (const std::string& bytes : std::initializer_list<std::string>{
           {"\x00\x01", 2},                                         // field number 0
           {"\x82\x01\x00", 3},                                     // number 16, or a long form
           {"\x0B\x0C", 2},                                         // a group
           {"\x0E\x00", 2},                                         // no wire type
           {"\x08", 1},                                             // a varint is missing
           std::string("\x08") + std::string(10, '\x80') + "\x01",  // or too long
           {"\x12\x02x", 3},                                        // cut off
           {"\x12\x82\x80\x80\x80\x80\x00xy", 9},                   // a length of six bytes
           {"\x1D"
            "abc",
            4}}) {
    std::string_view rest = bytes;
    EXPECT_FALSE(TakePlainField(&rest).has_value()) << ::testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace phasor
