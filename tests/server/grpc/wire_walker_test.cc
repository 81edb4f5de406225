// SPDX-License-Identifier: Apache-2.0
// The walker sees the same message however it is cut, copies none of its payload, and refuses what
// is not a sequence of fields.
#include "server/grpc/wire_walker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/requests.h"
#include "tests/support/status_matchers.h"

namespace phasor::rpc {
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

std::string JoinedBytes(const engine::Segments& segments) {
  std::string bytes;
  for (const Piece part : segments) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  return bytes;
}

// The message without `raw`, serialized.
std::string HeaderOf(v1::ApplyRoPERequest request) {
  request.clear_raw();
  return request.SerializeAsString();
}

TEST(WireWalkerTest, SplitsHeaderFromRawHoweverTheBytesAreCut) {
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

TEST(WireWalkerTest, AnotherProtocolHasItsRawFieldElsewhere) {
  const std::string bytes = "\x3A\x02xy\x7A\x01z";  // fields 7 and 15
  const auto walked = Walk(bytes, {1 << 20, 8, /*raw_field=*/7});
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, "\x7A\x01z");
  ASSERT_EQ(walked->raw.size(), 1u);
  EXPECT_EQ(JoinedBytes(walked->raw[0]), "xy");
}

TEST(WireWalkerTest, RawIsBorrowedAndNotCopied) {
  const std::string bytes = testing::RopeRequestOf(100).SerializeAsString();
  const auto walked = Walk(bytes);
  ASSERT_THAT(walked, IsOk());
  for (const engine::Segments& entry : walked->raw) {
    ASSERT_EQ(entry.size(), 1u);
    const auto* data = reinterpret_cast<const char*>(entry[0].data());
    EXPECT_GE(data, bytes.data());
    EXPECT_LE(data + entry[0].size(), bytes.data() + bytes.size());
  }
}

TEST(WireWalkerTest, RawMayComeBeforeAndBetweenOtherFields) {
  const std::string item = HeaderOf(testing::RopeRequestOf(3));
  const std::string bytes = "\x7A\x02xy" + item + "\x7A\x01z";
  const auto walked = Walk(bytes);
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, item);
  ASSERT_EQ(walked->raw.size(), 2u);
  EXPECT_EQ(JoinedBytes(walked->raw[0]), "xy");
  EXPECT_EQ(JoinedBytes(walked->raw[1]), "z");
}

TEST(WireWalkerTest, KeepsUnknownFieldsOfEveryWireTypeInTheHeader) {
  const std::string fields = std::string("\xA0\x06\x96\x01", 4) +       // 100: varint
                             std::string("\xA1\x06", 2) + "12345678" +  // 100: fixed64
                             std::string("\xA2\x06\x03", 3) + "abc" +   // 100: bytes
                             std::string("\xA5\x06", 2) + "1234";       // 100: fixed32
  const auto walked = Walk(fields);
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, fields);
  EXPECT_THAT(walked->raw, IsEmpty());
}

TEST(WireWalkerTest, EmptyMessageIsAnEmptyHeader) {
  const auto walked = WalkMessage({}, {});
  ASSERT_THAT(walked, IsOk());
  EXPECT_EQ(walked->header, "");
  EXPECT_THAT(walked->raw, IsEmpty());
}

TEST(WireWalkerTest, NonCanonicalVarintsOfARawLengthAreAccepted) {
  const std::string bytes("\x7A\x82\x80\x00xy", 6);  // 2 in three bytes
  const auto walked = Walk(bytes);
  ASSERT_THAT(walked, IsOk());
  ASSERT_EQ(walked->raw.size(), 1u);
  EXPECT_EQ(JoinedBytes(walked->raw[0]), "xy");
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
}

INSTANTIATE_TEST_SUITE_P(
    Messages, MalformedTest,
    ::testing::Values(Malformed{"TruncatedTag", "\x80", "not a varint"},
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
                      Malformed{"RawAsVarint", "\x78\x05", "raw has wire type 0"},
                      Malformed{"RawAsGroup", "\x7B", "raw has wire type 3"},
                      Malformed{"Group", "\x0B\x0C", "field 1 has wire type 3"},
                      Malformed{"GroupEnd", "\x0C", "field 1 has wire type 4"},
                      Malformed{"WireType6", "\x0E", "field 1 has wire type 6"},
                      Malformed{"WireType7", "\x0F", "field 1 has wire type 7"}),
    [](const auto& test) { return test.param.name; });

TEST(WireWalkerLimitTest, HeaderUpToTheLimitPassesAndOneMoreByteDoesNot) {
  const std::string field =
      "\x0A\x04"
      "abcd";
  EXPECT_THAT(Walk(field, {.max_header_bytes = 6}), IsOk());
  for (const int64_t limit : {5, 1, 0}) {
    EXPECT_THAT(Walk(field, {.max_header_bytes = limit}),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("metadata")));
  }
}

TEST(WireWalkerLimitTest, RawBytesDoNotCountAgainstTheHeader) {
  EXPECT_THAT(Walk("\x7A\x04"
                   "abcd",
                   {.max_header_bytes = 0}),
              IsOk());
}

TEST(WireWalkerLimitTest, RawEntriesUpToTheLimitPassAndOneMoreDoesNot) {
  const std::string entries("\x7A\x00\x7A\x00\x7A\x00", 6);
  EXPECT_THAT(Walk(entries, {.max_raw_entries = 3}), IsOk());
  EXPECT_THAT(Walk(entries, {.max_raw_entries = 2}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("raw: too many entries")));
}

}  // namespace
}  // namespace phasor::rpc
