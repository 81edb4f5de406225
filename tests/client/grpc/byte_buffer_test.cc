// SPDX-License-Identifier: Apache-2.0
#include "client/grpc/byte_buffer.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "tests/client/grpc/fake_server.h"

namespace phasor::client_internal {
namespace {

using ::testing::SizeIs;

absl::Span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string Text(const PieceList& entry) {
  std::string text(static_cast<size_t>(PieceBytes(entry)), '?');
  CopyPieces(entry, reinterpret_cast<std::byte*>(text.data()));
  return text;
}

// `bytes` received in pieces of `size`.
grpc::ByteBuffer InPieces(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += size) slices.emplace_back(bytes.substr(at, size));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

TEST(ByteBufferTest, WritesWhatProtobufWouldWrite) {
  v1::EncodeRequest header;
  header.mutable_item()->mutable_spec()->set_preset("p");
  const std::vector<std::string> entries = {"", std::string(100, 'a'), std::string(1 << 20, 'b'),
                                            "c"};
  std::vector<absl::Span<const std::byte>> raw;
  v1::EncodeRequest whole = header;
  for (const std::string& entry : entries) {
    raw.push_back(AsBytes(entry));
    whole.add_raw(entry);
  }
  Loan loan;
  const std::string bytes = FromBuffer(WriteRawMessage(header.SerializeAsString(), raw, loan));
  EXPECT_EQ(bytes, whole.SerializeAsString());
  EXPECT_EQ(RawMessageBytes(header.SerializeAsString(), raw), static_cast<int64_t>(bytes.size()));
}

TEST(ByteBufferTest, LargeEntriesAreNotCopied) {
  const std::string large(1 << 20, 'x');
  Loan loan;
  const absl::Span<const std::byte> entry = AsBytes(large);
  const grpc::ByteBuffer buffer = WriteRawMessage("", {&entry, 1}, loan);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(buffer.Dump(&slices).ok());
  EXPECT_EQ(reinterpret_cast<const char*>(slices.back().begin()), large.data());
}

TEST(ByteBufferTest, APartComesBackByItselfAndItsPiecesAreOutInTheWholeToo) {
  const std::string large(1 << 20, 'x');
  const Loan whole;
  Loan part = whole.Part(), other = whole.Part();
  std::vector<std::string> back;
  grpc::Slice of_part = part.Lend(AsBytes(large)), of_other = other.Lend(AsBytes(large));
  EXPECT_FALSE(part.Returned([&] { back.push_back("part"); }));
  EXPECT_FALSE(Loan(whole).Returned([&] { back.push_back("whole"); }));
  of_part = grpc::Slice();
  EXPECT_THAT(back, ::testing::ElementsAre("part"));
  EXPECT_TRUE(part.Returned(nullptr));
  EXPECT_FALSE(other.Returned(nullptr));
  of_other = grpc::Slice();
  EXPECT_THAT(back, ::testing::ElementsAre("part", "whole"));
}

TEST(ByteBufferTest, LoansComeBackWithTheLastSlice) {
  const std::string large(1 << 20, 'x');
  const absl::Span<const std::byte> entry = AsBytes(large);
  Loan loan;
  bool returned = false;
  {
    grpc::ByteBuffer first = WriteRawMessage("", {&entry, 1}, loan);
    const grpc::ByteBuffer second = first;
    EXPECT_FALSE(loan.Returned([&] { returned = true; }));
    first.Clear();
    EXPECT_FALSE(returned);
  }
  EXPECT_TRUE(returned);
  EXPECT_TRUE(loan.Returned([] { FAIL() << "everything came back before"; }));
}

TEST(ByteBufferTest, ReadsMessagesCutAnywhere) {
  v1::EncodeResponse response;
  response.mutable_result()->mutable_info()->set_backend("cpu");
  response.add_raw("first");
  response.add_raw("");
  response.add_raw(std::string(300, 'z'));
  const std::string bytes = response.SerializeAsString();
  for (size_t size : {size_t{1}, size_t{2}, size_t{7}, bytes.size()}) {
    auto message = ReadRawMessage(InPieces(bytes, size));
    ASSERT_TRUE(message.ok()) << message.status();
    v1::EncodeResponse header;
    ASSERT_TRUE(header.ParseFromString(message->header));
    EXPECT_EQ(header.result().info().backend(), "cpu");
    ASSERT_THAT(message->raw, SizeIs(3));
    EXPECT_EQ(Text(message->raw[0]), "first");
    EXPECT_EQ(PieceBytes(message->raw[1]), 0);
    EXPECT_EQ(Text(message->raw[2]), std::string(300, 'z'));
  }
}

TEST(ByteBufferTest, TakesFieldsInAnyOrderAndKeepsUnknownOnes) {
  // raw, then fixed64 field 3, fixed32 field 4, varint field 5, all unknown to the walker.
  const std::string bytes("\x7A\x02hi\x19\1\2\3\4\5\6\7\x08\x25\1\2\3\4\x28\x96\x01", 21);
  auto message = ReadRawMessage(ToBuffer(bytes));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(message->header, bytes.substr(4));
  EXPECT_EQ(Text(message->raw[0]), "hi");
}

TEST(ByteBufferTest, NothingIsAnEmptyMessage) {
  auto message = ReadRawMessage(grpc::ByteBuffer());
  ASSERT_TRUE(message.ok());
  EXPECT_TRUE(message->header.empty());
  EXPECT_TRUE(message->raw.empty());
}

TEST(ByteBufferTest, RejectsMalformedBytes) {
  const std::string cases[] = {
      "\x7A",                                                  // no length
      std::string("\x7A\x05only", 6),                          // shorter than its length
      "\x7A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F",              // a length of 2^63 - 1
      "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",  // a number without end
      "\x0B",                                                  // a group without end
      "\x0F",                                                  // wire type 7
      std::string("\x09\0\0", 3),                              // half a fixed64
  };
  for (const std::string& bytes : cases) {
    EXPECT_EQ(ReadRawMessage(ToBuffer(bytes)).status().code(), absl::StatusCode::kInternal);
  }
}

TEST(ByteBufferTest, EveryTruncationIsAnErrorOrShorter) {
  v1::EncodeResponse response;
  response.mutable_result()->mutable_info()->set_backend("cpu");
  response.add_raw("abcdefgh");
  const std::string bytes = response.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    auto message = ReadRawMessage(ToBuffer(bytes.substr(0, size)));
    if (message.ok()) {
      EXPECT_TRUE(message->raw.empty()) << size;
    }
  }
}

}  // namespace
}  // namespace phasor::client_internal
