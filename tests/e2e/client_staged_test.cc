// SPDX-License-Identifier: Apache-2.0
// Tests the other calls that use shared memory: batches, streams, and large tensors in ordinary
// memory, which the client stages.
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/e2e/shared_server.h"
#include "tests/support/eventually.h"

namespace phasor {
namespace {

using ClientStagedTest = ClientSharedTest;

// Takes no tensors in messages.
class NamesOnlyTest : public ClientSharedTest {
 protected:
  void SetUp() override {
    ServerOptions options = Options();
    options.max_message_bytes = 16 << 10;
    Start(options);
  }
};

TEST_F(NamesOnlyTest, BatchesUseSharedMemory) {
  constexpr int64_t kTokens = 300, kBytes = kTokens * 64 * 4;
  const SharedMemory memory = Shared(unix_, 3 * kBytes);
  Fill(memory.data(), memory.size(), Dtype::kFloat32);
  const auto call = [&](std::byte* data, int64_t tokens) {
    return RopeCall{.spec = kLlama,
                    .positions = IntegerRange{.count = tokens},
                    .tensors = {ViewOf(data, Dtype::kFloat32, {kTokens, 1, 64})}};
  };
  std::vector<std::byte> ordinary(memory.data(), memory.data() + kBytes), expected = ordinary;
  ASSERT_TRUE(here_.ApplyRoPE(call(expected.data(), kTokens)).ok());
  std::memcpy(memory.data() + 2 * kBytes, memory.data(), kBytes);
  const std::vector<std::byte> second(memory.data() + kBytes, memory.data() + 2 * kBytes);
  // The second is wrong: as many positions as tokens.
  const auto results =
      unix_.BatchApplyRoPE({call(memory.data(), kTokens), call(memory.data() + kBytes, kTokens - 1),
                            call(memory.data() + 2 * kBytes, kTokens)});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE((*results)[0].ok()) << (*results)[0].status();
  EXPECT_EQ((*results)[1].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE((*results)[2].ok()) << (*results)[2].status();
  EXPECT_EQ(std::memcmp(memory.data(), expected.data(), kBytes), 0);
  EXPECT_EQ(std::memcmp(memory.data() + kBytes, second.data(), kBytes), 0);
  EXPECT_EQ(std::memcmp(memory.data() + 2 * kBytes, expected.data(), kBytes), 0);
}

TEST_F(ClientStagedTest, BatchesMixSharedAndOrdinaryMemory) {
  constexpr int64_t kTokens = 100;
  std::vector<float> ordinary(kTokens * 64);
  std::iota(ordinary.begin(), ordinary.end(), 0.f);
  const SharedMemory memory = Shared(unix_, kTokens * 64 * 4);
  std::memcpy(memory.data(), ordinary.data(), static_cast<size_t>(memory.size()));
  const std::vector<int64_t> shape = {kTokens, 1, 64};
  const auto call = [&](const MutableTensorView& x) {
    return RopeCall{.spec = kLlama, .positions = IntegerRange{.count = kTokens}, .tensors = {x}};
  };
  std::vector<float> expected = ordinary;
  ASSERT_TRUE(here_.ApplyRoPE(call(MutableView(expected, shape))).ok());
  const auto results = unix_.BatchApplyRoPE(
      {call(MutableView(ordinary, shape)), call(ViewOf(memory.data(), Dtype::kFloat32, shape))});
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_TRUE((*results)[0].ok() && (*results)[1].ok());
  EXPECT_EQ(ordinary, expected);
  EXPECT_EQ(std::memcmp(memory.data(), expected.data(), static_cast<size_t>(memory.size())), 0);
}

TEST_F(NamesOnlyTest, BatchesOfEncodingsAreWrittenInSharedMemory) {
  const SharedMemory memory = Shared(unix_, 2 * 500 * 32 * 4);
  std::vector<EncodeCall> calls;
  for (const int64_t i : {0, 1}) {
    calls.push_back(
        {.spec = {.preset = "transformer", .dim = 32},
         .positions = IntegerRange{.start = 7 * i, .count = 500},
         .output = ViewOf(memory.data() + i * 500 * 32 * 4, Dtype::kFloat32, {500, 32})});
  }
  const auto results = unix_.BatchEncode(calls);
  ASSERT_TRUE(results.ok()) << results.status();
  for (const size_t i : {size_t{0}, size_t{1}}) {
    ASSERT_TRUE((*results)[i].ok()) << (*results)[i].status();
    const auto expected = here_.Encode({.spec = calls[i].spec, .positions = calls[i].positions});
    EXPECT_EQ(std::memcmp(calls[i].output->data, expected->bytes.data(), 500 * 32 * 4), 0);
  }
}

TEST_F(NamesOnlyTest, StreamsUseSharedMemoryOfAnyTime) {
  constexpr int64_t kTokens = 300, kBytes = kTokens * 64 * 4;
  const auto stream = unix_.StreamApplyRoPE();  // before there is any
  const SharedMemory memory = Shared(unix_, 2 * kBytes);
  Fill(memory.data(), memory.size(), Dtype::kFloat32);
  std::vector<std::byte> expected(memory.data(), memory.data() + memory.size());
  const auto call = [&](std::byte* data) {
    return RopeCall{.spec = kLlama,
                    .positions = IntegerRange{.count = kTokens},
                    .tensors = {ViewOf(data, Dtype::kFloat32, {kTokens, 1, 64})}};
  };
  for (const int64_t i : {0, 1}) {
    ASSERT_TRUE(here_.ApplyRoPE(call(expected.data() + i * kBytes)).ok());
    ASSERT_TRUE(stream->Write(i, call(memory.data() + i * kBytes)).ok());
  }
  RopeCall wrong = call(memory.data());
  wrong.positions = IntegerRange{.count = 1};
  ASSERT_TRUE(stream->Write(2, std::move(wrong)).ok());
  stream->WritesDone();
  int answers = 0;
  for (auto answer = stream->Read(); answer.has_value(); answer = stream->Read(), ++answers) {
    EXPECT_EQ(answer->result.ok(), answer->id < 2) << answer->result.status();
  }
  EXPECT_EQ(answers, 3);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(std::memcmp(memory.data(), expected.data(), expected.size()), 0);
}

// Large tensors in ordinary memory, which the client shares by itself. What travels is refused.
class StagedCallTest : public NamesOnlyTest {
 protected:
  static constexpr int64_t kTokens = 2048;
  static RopeCall CallOf(std::vector<float>& x) {
    return {.spec = kLlama,
            .positions = IntegerRange{.count = kTokens},
            .tensors = {MutableView(x, {kTokens, 2, 64})}};
  }
  static std::vector<float> Numbers() {
    std::vector<float> x(kTokens * 2 * 64);
    std::iota(x.begin(), x.end(), 0.f);
    return x;
  }
  std::vector<float> Rotated() {
    std::vector<float> x = Numbers();
    EXPECT_TRUE(here_.ApplyRoPE(CallOf(x)).ok());
    return x;
  }
  static bool Travels(const Client& client) {
    std::vector<float> x = Numbers();
    const absl::Status status = client.ApplyRoPE(CallOf(x)).status();
    EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
    if (!status.ok()) {
      EXPECT_EQ(x, Numbers()) << "written on success only";
    }
    return !status.ok();
  }
  // Until the client knows the server's socket.
  static void WaitUntilStaged(const Client& client) {
    ASSERT_TRUE(testing::Eventually([&] { return !Travels(client); }));
  }
};

TEST_F(StagedCallTest, LargeTensorsOfOneHostDoNotTravel) {
  for (const Client* client : {&unix_, &tcp_}) {
    EXPECT_TRUE(Travels(*client)) << "the first one does: nobody waits";
    WaitUntilStaged(*client);
  }
  const Client off = Connect(server_->listeners()[0], {.staging_bytes = 0});
  const Client too_little = Connect(server_->listeners()[0], {.staging_bytes = 1 << 19});
  EXPECT_TRUE(Travels(off));
  EXPECT_TRUE(Travels(too_little));
  WaitUntilStaged(Connect(server_->listeners()[0]));  // by then these two could be staged as well
  EXPECT_TRUE(Travels(off));
  EXPECT_TRUE(Travels(too_little));
}

TEST_F(StagedCallTest, ResultsAreThoseOfInlineCalls) {
  WaitUntilStaged(unix_);
  const std::vector<float> expected = Rotated();
  std::vector<float> x = Numbers(), out(x.size());
  RopeCall call = CallOf(x);
  call.tensors = {RopeTensor(View(x, {kTokens, 2, 64}), MutableView(out, {kTokens, 2, 64}))};
  ASSERT_TRUE(unix_.ApplyRoPE(call).ok());
  EXPECT_EQ(out, expected);
  EXPECT_EQ(x, Numbers());
  auto future = unix_.ApplyRoPEAsync(CallOf(x));
  ASSERT_TRUE(future.get().ok());
  EXPECT_EQ(x, expected);

  EncodeCall encode{.spec = {.preset = "transformer", .dim = 128},
                    .positions = IntegerRange{.count = kTokens}};
  encode.output = MutableView(x, {kTokens, 128});
  const auto rows = here_.Encode(encode);
  encode.output = MutableView(out, {kTokens, 128});
  const auto staged = unix_.Encode(encode);
  ASSERT_TRUE(rows.ok() && staged.ok()) << rows.status() << staged.status();
  EXPECT_EQ(out, x);
  EXPECT_EQ(staged->output.shape, rows->output.shape);
}

TEST_F(StagedCallTest, ErrorsAreThoseOfInlineCalls) {
  server_.reset();
  ServerOptions options = Options();
  options.max_message_bytes = 768 << 10;  // the calls below may travel, those of Travels() may not
  Start(options);
  const Client travels = Connect(server_->listeners()[0], {.staging_bytes = 0});
  constexpr int64_t kHalf = kTokens / 2;
  std::vector<float> x = Numbers();
  x.resize(x.size() / 2);
  const std::vector<float> before = x;
  EncodeCall encode{.spec = {.preset = "transformer", .dim = 128},
                    .positions = IntegerRange{.count = kHalf}};
  encode.output = MutableView(x, {kHalf, 64, 2});  // of another shape
  const RopeCall call{.spec = kLlama,
                      .positions = IntegerRange{.count = 1},
                      .tensors = {MutableView(x, {kHalf, 2, 64})}};
  for (const bool staged : {false, true}) {
    if (staged) WaitUntilStaged(unix_);
    for (const auto& [one, other] :
         {std::pair{unix_.Encode(encode).status(), travels.Encode(encode).status()},
          std::pair{unix_.ApplyRoPE(call).status(), travels.ApplyRoPE(call).status()}}) {
      EXPECT_FALSE(one.ok());
      EXPECT_EQ(one, other) << "staged: " << staged;
    }
  }
  EXPECT_EQ(x, before);
}

TEST_F(StagedCallTest, WhenItsServerIsReplacedCallsGoOn) {
  WaitUntilStaged(tcp_);
  const std::string address = server_->listeners()[0];
  server_.reset();
  ServerOptions options = Options();
  options.listen = {address};
  options.log_level = "off";
  auto successor = Server::Start(options);
  ASSERT_TRUE(successor.ok()) << successor.status();
  server_ = *std::move(successor);
  std::vector<float> x = Numbers();
  absl::Status status = absl::UnknownError("");
  const bool goes_on = testing::Eventually([&] {
    status = tcp_.ApplyRoPE(CallOf(x)).status();
    if (status.ok()) return true;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(x, Numbers()) << "written on success only";
    return false;
  });
  EXPECT_TRUE(goes_on) << status;
  EXPECT_EQ(x, Rotated());
}

TEST_F(StagedCallTest, ManyCallsAtATimeMix) {
  WaitUntilStaged(unix_);
  const std::vector<float> expected = Rotated();
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        std::vector<float> x = Numbers();
        EXPECT_TRUE(unix_.ApplyRoPE(CallOf(x)).ok());
        EXPECT_EQ(x, expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace phasor
