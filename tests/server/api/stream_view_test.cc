// SPDX-License-Identifier: Apache-2.0
// Tests how messages of streams are parsed, and whether an error ends an item or the stream.
#include "server/api/stream_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/plan/plan.h"
#include "tests/support/requests.h"
#include "tests/support/status_matchers.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::EncodeOf;
using ::phasor::testing::RopeOf;
using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using ::phasor::testing::kInvalid;

class StreamViewTest : public ::testing::Test {
 protected:
  template <typename Message>
  absl::StatusOr<StreamRequest> Parse(const Message& message) {
    bytes_ = message.SerializeAsString();
    const absl::Span<const std::byte> piece(reinterpret_cast<const std::byte*>(bytes_.data()),
                                            bytes_.size());
    const auto walked = WalkMessage({piece}, {});
    EXPECT_TRUE(walked.ok()) << walked.status();
    const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
    const ViewContext context{plans, "cpu", 1 << 20, 8, nullptr};
    if constexpr (std::is_same_v<Message, v1::StreamEncodeRequest>) {
      return ParseStreamEncode(*walked, context);
    } else {
      return ParseStreamApplyRoPE(*walked, context);
    }
  }

  // The content's own error.
  template <typename Message>
  absl::Status Error(const Message& message) {
    const auto request = Parse(message);
    if (!request.ok()) return absl::UnknownError("not the content's");
    const auto* status = std::get_if<absl::Status>(&request->content);
    return status == nullptr ? absl::OkStatus() : *status;
  }

  std::string bytes_;
};

TEST_F(StreamViewTest, TellsItemsOpeningsAndRunsApart) {
  v1::StreamEncodeRequest message;
  message.set_id(-7);
  *message.mutable_item() = EncodeOf(3);
  auto request = Parse(message);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->id, -7);
  ASSERT_TRUE(std::holds_alternative<RequestView>(request->content));
  EXPECT_EQ(std::get<RequestView>(request->content).response_bytes, 3 * 32);

  message.set_chunked(true);
  request = Parse(message);
  ASSERT_TRUE(std::holds_alternative<ChunkedItem>(request->content));
  EXPECT_EQ(std::get<ChunkedItem>(request->content).tokens(), 3);

  message.set_chunked(false);
  message.mutable_chunk()->set_first_token(2);
  request = Parse(message);
  ASSERT_TRUE(std::holds_alternative<v1::Chunk>(request->content));
  EXPECT_EQ(std::get<v1::Chunk>(request->content).first_token(), 2);
}

// The answer repeats the chunk: a stranger must not choose what else is in it.
TEST_F(StreamViewTest, AChunkLosesUnknownFields) {
  v1::StreamApplyRoPERequest message;
  v1::Chunk* const chunk = message.mutable_chunk();
  chunk->set_first_token(2);
  const std::string known = chunk->SerializeAsString();
  chunk->GetReflection()->MutableUnknownFields(chunk)->AddLengthDelimited(1000, "echo");
  const auto request = Parse(message);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(std::get<v1::Chunk>(request->content).SerializeAsString(), known);
}

TEST_F(StreamViewTest, AnItemsErrorsAreThoseOfAUnaryCall) {
  v1::StreamApplyRoPERequest message;
  *message.mutable_item() = RopeOf(2);
  EXPECT_THAT(Error(message), StatusIs(kInvalid, HasSubstr("raw: 0 entries; must be 2")));
  message.mutable_item()->clear_direction();
  EXPECT_THAT(Error(message), StatusIs(kInvalid, StartsWith("item.direction: ")));
}

TEST_F(StreamViewTest, SaysWhatIsMissingOrTooMuch) {
  v1::StreamEncodeRequest message;
  EXPECT_THAT(Error(message), StatusIs(kInvalid, HasSubstr("item: not set")));
  message.mutable_chunk();
  message.set_chunked(true);
  EXPECT_THAT(Error(message), StatusIs(kInvalid, HasSubstr("chunked: set beside chunk")));
}

TEST_F(StreamViewTest, AHeaderThatDoesNotParseHasNoId) {
  v1::Preset other;  // field 1 is text there
  other.set_name("x");
  bytes_ = other.SerializeAsString();
  WalkedMessage walked;
  walked.header = std::string("\x12\x05zz", 4);  // an item of 5 bytes, of which 2 are there
  const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
  EXPECT_THAT(ParseStreamEncode(walked, {plans, "cpu", 1 << 20, 8, nullptr}),
              StatusIs(kInvalid, HasSubstr("does not parse")));
}

}  // namespace
}  // namespace phasor::rpc
