// SPDX-License-Identifier: Apache-2.0
// Tests streams and chunks over TCP, over a Unix socket and in process: bytes and errors equal
// those of unary calls.
#include <cstring>
#include <map>
#include <numeric>
#include <thread>

#include "gmock/gmock.h"
#include "tests/e2e/client_server.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;

class ClientStreamTest : public ClientServerTest {
 protected:
  void SetUp() override { Start(); }
  std::vector<const Client*> Clients() const { return {&here_, &tcp_, &unix_}; }

  static std::vector<float> Numbers(int64_t count) {
    std::vector<float> x(static_cast<size_t>(count));
    std::iota(x.begin(), x.end(), -7.25F);
    return x;
  }
  static void ExpectEqual(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * 4), 0);
  }

  // `call` of `x` in place, plainly and in chunks, by every client.
  void ExpectChunksEqual(RopeCall call, std::vector<int64_t> shape, int64_t chunk_bytes) {
    std::vector<float> want = Numbers(ElementsOf(shape));
    call.tensors = {MutableView(want, shape)};
    const auto info = here_.ApplyRoPE(call);
    ASSERT_TRUE(info.ok()) << info.status();
    for (const Client* client : Clients()) {
      std::vector<float> got = Numbers(ElementsOf(shape));
      call.tensors = {MutableView(got, shape)};
      const auto chunked = client->ApplyRoPEInChunks(call, {.chunk_bytes = chunk_bytes});
      ASSERT_TRUE(chunked.ok()) << chunked.status();
      EXPECT_EQ(*chunked, *info);
      ExpectEqual(got, want);
    }
  }
  static int64_t ElementsOf(const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
};

TEST_F(ClientStreamTest, AnswersHaveTheBytesOfPlainCalls) {
  for (const Client* client : Clients()) {
    const auto stream = client->StreamEncode({.timeout = absl::Seconds(60)});
    std::thread writer([&] {
      for (int64_t id = 0; id < 200; ++id) {
        EXPECT_TRUE(stream
                        ->Write(id, {.spec = {.preset = "transformer", .dim = 64},
                                     .positions = IntegerRange{id, 1, 1 + 20 * id}})
                        .ok());
      }
      stream->WritesDone();
    });
    std::map<int64_t, absl::StatusOr<EncodeResult>> answers;
    while (auto answer = stream->Read()) answers.emplace(answer->id, std::move(answer->result));
    writer.join();
    EXPECT_TRUE(stream->Finish().ok());
    ASSERT_EQ(answers.size(), 200);
    for (const auto& [id, result] : answers) {
      ASSERT_TRUE(result.ok()) << result.status();
      const auto want =
          here_.Encode({.preset = "transformer", .dim = 64}, IntegerRange{id, 1, 1 + 20 * id});
      ASSERT_EQ(result->bytes.size(), static_cast<int64_t>(want->size() * 4));
      EXPECT_EQ(std::memcmp(result->bytes.data(), want->data(), want->size() * 4), 0);
    }
  }
}

TEST_F(ClientStreamTest, AnItemsErrorIsThatOfAPlainCallEverywhere) {
  std::vector<float> x = Numbers(16);
  const RopeCall wrong{.spec = {.preset = "no-such"},
                       .positions = IntegerRange{0, 1, 2},
                       .tensors = {MutableView(x, {2, 1, 8})}};
  const absl::Status want = here_.ApplyRoPE(wrong).status();
  EXPECT_EQ(want.code(), absl::StatusCode::kNotFound);
  for (const Client* client : Clients()) {
    const auto stream = client->StreamApplyRoPE();
    ASSERT_TRUE(stream->Write(5, wrong).ok());
    const auto answer = stream->Read();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->result.status(), want);
    RopeCall small = wrong;
    small.tensors[0].input.bytes = 1;
    EXPECT_EQ(stream->Write(6, small), here_.ApplyRoPE(small).status());
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_EQ(client->ApplyRoPEInChunks(wrong).status(), want);
    EXPECT_EQ(client->ApplyRoPEInChunks(small).status(), here_.ApplyRoPE(small).status());
    EXPECT_THAT(client->ApplyRoPEInChunks(wrong, {.chunk_bytes = 0}).status().message(),
                HasSubstr("chunk_bytes: 0"));
  }
}

TEST_F(ClientStreamTest, FinishMakesTheCallsThatWereNotReadEverywhere) {
  const Spec spec = {.preset = "rope-half-split"};
  std::vector<float> want = Numbers(16);
  ASSERT_TRUE(here_.ApplyRoPE(spec, {1, 2}, {MutableView(want, {2, 1, 8})}).ok());
  for (const Client* client : Clients()) {
    std::vector<float> got = Numbers(16);
    const auto stream = client->StreamApplyRoPE();
    ASSERT_TRUE(
        stream
            ->Write(1,
                    {.spec = spec, .positions = {1, 2}, .tensors = {MutableView(got, {2, 1, 8})}})
            .ok());
    EXPECT_TRUE(stream->Finish().ok());
    EXPECT_EQ(got, want);
  }
}

TEST_F(ClientStreamTest, CancellationAndDeadlineEndAStreamEverywhere) {
  for (const Client* client : Clients()) {
    CancelToken token;
    const auto cancelled = client->StreamEncode({.cancel = token});
    std::thread canceller([&] { token.Cancel(); });
    EXPECT_FALSE(cancelled->Read().has_value());
    EXPECT_EQ(cancelled->Finish().code(), absl::StatusCode::kCancelled);
    canceller.join();
    const auto late = client->StreamEncode({.timeout = absl::Milliseconds(20)});
    EXPECT_FALSE(late->Read().has_value());
    EXPECT_EQ(late->Finish().code(), absl::StatusCode::kDeadlineExceeded);
  }
}

TEST_F(ClientStreamTest, ChunksHaveTheBytesOfTheWholeForEveryKindOfPositions) {
  const Spec rope{.preset = "rope-half-split"};
  std::vector<double> numbers(501);
  std::iota(numbers.begin(), numbers.end(), 0.125);
  const PositionList all[] = {IntegerRange{1 << 20, 3, 501}, RealRange{0.1, 0.7, 501},
                              RaggedPositions{{100, 0, 300, 101}, {5, 6, 7, 8}}, numbers};
  for (const PositionList& positions : all) {
    ExpectChunksEqual({.spec = rope, .positions = positions}, {501, 3, 64}, 7777);
  }
  const PositionGrid grid{{IntegerRange{0, 1, 3}, RealRange{0.5, 0.25, 67}, IntegerRange{7, 1, 2}}};
  ExpectChunksEqual({.spec = {.preset = "cogvideox-5b"}, .positions = grid}, {402, 2, 64}, 7777);
}

TEST_F(ClientStreamTest, ChunksHaveTheBytesOfTheWholeForEveryFormOfCall) {
  const Spec rope{.preset = "rope-interleaved"};
  const PositionList positions = IntegerRange{9, 1, 300};
  ExpectChunksEqual({.spec = rope, .positions = positions, .layout = RopeLayout::kHeadsTokens},
                    {4, 300, 32}, 10000);
  ExpectChunksEqual({.spec = rope, .positions = positions}, {3, 300, 2, 32}, 10000);
  ExpectChunksEqual({.spec = rope, .positions = positions, .layout = RopeLayout::kHeadsTokens},
                    {2, 3, 300, 32}, 1);
  ExpectChunksEqual({.spec = rope, .positions = positions, .direction = Direction::kInverse},
                    {300, 2, 32}, 1 << 20);
  ExpectChunksEqual({.spec = rope,
                     .positions = positions,
                     .direction = Direction::kDelta,
                     .from_positions = IntegerRange{0, 2, 300}},
                    {300, 2, 32}, 5000);
  std::vector<int64_t> numbers(600);
  std::iota(numbers.begin(), numbers.end(), 40);
  ExpectChunksEqual({.spec = rope, .positions = View(numbers, {2, 300})}, {2, 300, 2, 32}, 5000);
  const std::vector<int64_t> from(numbers.rbegin(), numbers.rend());
  ExpectChunksEqual({.spec = rope,
                     .positions = View(numbers, {2, 300}),
                     .direction = Direction::kDelta,
                     .from_positions = View(from, {2, 300})},
                    {2, 300, 2, 32}, 5000);
}

TEST_F(ClientStreamTest, ChunksShowTheirProgress) {
  for (const Client* client : Clients()) {
    std::vector<float> x = Numbers(100 * 8);
    std::vector<int64_t> seen;
    const auto info = client->ApplyRoPEInChunks(
        {.spec = {.preset = "rope-half-split"},
         .positions = IntegerRange{0, 1, 100},
         .tensors = {MutableView(x, {100, 1, 8})}},
        {.chunk_bytes = 30 * 32, .progress = [&](int64_t done, int64_t all) {
           EXPECT_EQ(all, 100);
           seen.push_back(done);
         }});
    ASSERT_TRUE(info.ok()) << info.status();
    ASSERT_EQ(seen.size(), 4);
    EXPECT_EQ(seen.back(), 100);
  }
}

absl::StatusOr<std::unique_ptr<Server>> StartWithIdleTimeout(absl::Duration timeout) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.log_level = "off";
  options.stream_idle_timeout = timeout;
  return Server::Start(options);
}

TEST(ClientStreamServerTest, AnIdleStreamEndsAfterTheConfiguredTime) {
  const auto server = StartWithIdleTimeout(absl::Milliseconds(100));
  ASSERT_TRUE(server.ok()) << server.status();
  const auto client = Client::Connect((*server)->listeners()[0]);
  const auto stream = client->StreamEncode();
  EXPECT_FALSE(stream->Read().has_value());
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kDeadlineExceeded);
}

// A machine that stalls for the whole timeout ends the stream early; then the test takes more time.
TEST(ClientStreamServerTest, AStreamIsIdleFromItsLastAnswerOn) {
  for (absl::Duration timeout = absl::Milliseconds(400); timeout < absl::Minutes(1); timeout *= 2) {
    const auto server = StartWithIdleTimeout(timeout);
    ASSERT_TRUE(server.ok()) << server.status();
    const auto client = Client::Connect((*server)->listeners()[0]);
    const auto stream = client->StreamEncode();
    const EncodeCall call{.spec = {.preset = "transformer", .dim = 4},
                          .positions = IntegerRange{0, 1, 1}};
    const absl::Time begun = absl::Now();
    absl::Time written = begun;
    bool answered = true;
    while (answered && written - begun < timeout / 2) {
      written = absl::Now();
      answered = stream->Write(0, call).ok() && stream->Read().has_value();
    }
    if (!answered) continue;
    EXPECT_FALSE(stream->Read().has_value());
    EXPECT_GE(absl::Now() - written, timeout);
    EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kDeadlineExceeded);
    return;
  }
  FAIL() << "every stream ended while it was in use";
}

}  // namespace
}  // namespace phasor
