// SPDX-License-Identifier: Apache-2.0
// Tests unary calls: messages, errors, retries and pushback.
#include "client/grpc/grpc_channel.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/steady_time.h"
#include "tests/client/grpc/fake_server.h"
#include "tests/support/temp_dir.h"

namespace phasor::client_internal {
namespace {

using ::phasor::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Waits are noted, and pass at once.
class FakeTimer : public Timer {
 public:
  absl::Time Now() override { return SteadyNow() + waited; }
  void After(absl::Duration delay, absl::AnyInvocable<void()> then) override {
    waits.push_back(delay);
    waited += delay;
    then();
  }
  std::vector<absl::Duration> waits;
  absl::Duration waited;
};

// Starts a server during the fourth wait.
class StartingTimer : public Timer {
 public:
  explicit StartingTimer(std::string address) : address_(std::move(address)) {}
  absl::Time Now() override { return SteadyNow(); }
  void After(absl::Duration delay, absl::AnyInvocable<void()> then) override {
    if (++waits_ == 4) {
      server_.emplace([this](const auto&) { return ++calls, FakeServer::Reply{}; }, address_);
    }
    connects->WaitForConnected(WallTimeAfter(delay));
    then();
  }
  std::atomic<int> calls = 0;
  std::shared_ptr<grpc::Channel> connects;

 private:
  const std::string address_;
  int waits_ = 0;
  std::optional<FakeServer> server_;
};

const grpc::Status kBusy(grpc::StatusCode::UNAVAILABLE, "busy");

// Whether the caller waits: its own thread moves the bytes then.
class GrpcChannelTest : public ::testing::TestWithParam<bool> {
 protected:
  // Calls with one raw entry and waits.
  absl::Status Call(const FakeServer& server, const std::string& raw,
                    const CallContext& context = {.deadline = SteadyNow() + absl::Seconds(30)}) {
    GrpcChannel channel(*GrpcTarget(server.target()), {}, &timer_);
    return Call(channel, raw, context);
  }
  absl::Status Call(GrpcChannel& channel, const std::string& raw, const CallContext& context) {
    absl::Status result;
    absl::Notification done;
    RawCall call{.method = "/a.B/C",
                 .header = "",
                 .raw = {{reinterpret_cast<const std::byte*>(raw.data()), raw.size()}}};
    call.on_response = [&](const WalkedMessage& message) {
      header_ = message.header;
      return on_response_;
    };
    call.done = [&](absl::Status status) {
      result = std::move(status);
      done.Notify();
    };
    CallContext with_mode = context;
    with_mode.caller_waits = GetParam();
    channel.Start(std::move(call), with_mode);
    EXPECT_TRUE(done.HasBeenNotified() || !GetParam());
    done.WaitForNotification();
    return result;
  }

  FakeTimer timer_;
  std::string header_;
  absl::Status on_response_;
};

TEST_P(GrpcChannelTest, CarriesMethodRequestAndResponse) {
  FakeServer::Request seen;
  FakeServer server([&](const FakeServer::Request& request) {
    seen = request;
    return FakeServer::Reply{.bytes = "\x08\x01"};
  });
  EXPECT_TRUE(Call(server, "abc").ok());
  EXPECT_EQ(seen.method, "/a.B/C");
  EXPECT_EQ(seen.bytes,
            "\x7A\x03"
            "abc");
  EXPECT_EQ(header_, "\x08\x01");
}

TEST_P(GrpcChannelTest, CarriesMetadataWithEveryAttempt) {
  std::mutex mutex;
  std::vector<std::string> seen;
  FakeServer server([&](const FakeServer::Request& request) {
    std::lock_guard lock(mutex);
    for (const char* key : {"traceparent", "x-bin"}) {
      const auto found = request.metadata.find(key);
      seen.push_back(found == request.metadata.end() ? "none" : found->second);
    }
    if (seen.size() == 2) return FakeServer::Reply{.status = kBusy};
    return FakeServer::Reply{};
  });
  const std::string bytes("\0\xff", 2);
  EXPECT_TRUE(Call(server, "abc",
                   {.deadline = SteadyNow() + absl::Seconds(30),
                    .metadata = {{"traceparent", "00-1-2-01"}, {"x-bin", bytes}}})
                  .ok());
  EXPECT_THAT(seen, ElementsAre("00-1-2-01", bytes, "00-1-2-01", bytes));
}

TEST_P(GrpcChannelTest, MetadataThatCannotBeSentIsRefusedHere) {
  int calls = 0;
  FakeServer server([&](const auto&) {
    ++calls;
    return FakeServer::Reply{};
  });
  const absl::Status status = Call(server, "abc", {.metadata = {{"Bad Key", "1"}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("metadata[0]: 'Bad Key'"));
  EXPECT_EQ(calls, 0);
}

TEST_P(GrpcChannelTest, ServerErrorsKeepCodeAndMessage) {
  FakeServer server([](const auto&) {
    return FakeServer::Reply{.status = {grpc::StatusCode::NOT_FOUND, "item.spec.preset: unknown"}};
  });
  EXPECT_EQ(Call(server, "abc"), absl::NotFoundError("item.spec.preset: unknown"));
  EXPECT_THAT(timer_.waits, SizeIs(0));
}

TEST_P(GrpcChannelTest, RequestsAboveTheRetryBufferAreSentAgainWhole) {
  const std::string large(300 << 10, 'x');  // gRPC's own retries stop at 256 KiB
  std::vector<std::string> seen;
  FakeServer server([&](const FakeServer::Request& request) {
    seen.push_back(request.bytes);
    return seen.size() < 3 ? FakeServer::Reply{.status = kBusy} : FakeServer::Reply{};
  });
  EXPECT_TRUE(Call(server, large).ok());
  ASSERT_THAT(seen, SizeIs(3));
  EXPECT_EQ(seen[0].substr(4), large);
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
}

TEST_P(GrpcChannelTest, HonoursTheServersPushback) {
  std::atomic<int> calls = 0;
  FakeServer server([&](const auto&) {
    return ++calls == 1 ? FakeServer::Reply{.status = kBusy, .pushback_ms = "1234"}
                        : FakeServer::Reply{};
  });
  EXPECT_TRUE(Call(server, "abc").ok());
  EXPECT_THAT(timer_.waits, ElementsAre(absl::Milliseconds(1234)));
}

// AddressSanitizer's build also sees whether a wait leaves memory behind.
TEST_P(GrpcChannelTest, WaitsBeforeRetriesInRealTime) {
  std::atomic<int> calls = 0;
  FakeServer server([&](const auto&) {
    return ++calls < 10 ? FakeServer::Reply{.status = kBusy} : FakeServer::Reply{};
  });
  GrpcChannel channel(*GrpcTarget(server.target()), {.max_attempts = 10,
                                                     .initial_backoff = absl::Milliseconds(1),
                                                     .max_backoff = absl::Milliseconds(1)});
  EXPECT_TRUE(Call(channel, "abc", {.deadline = SteadyNow() + absl::Seconds(30)}).ok());
  EXPECT_EQ(calls, 10);
}

TEST_P(GrpcChannelTest, NegativePushbackStopsRetries) {
  std::atomic<int> calls = 0;
  FakeServer server([&](const auto&) {
    ++calls;
    return FakeServer::Reply{.status = kBusy, .pushback_ms = "-1"};
  });
  EXPECT_EQ(Call(server, "abc"), absl::UnavailableError("busy"));
  EXPECT_EQ(calls, 1);
}

TEST_P(GrpcChannelTest, RefusedResponsesFailTheCall) {
  FakeServer server([](const auto&) { return FakeServer::Reply{}; });
  on_response_ = absl::InternalError("response: no good");
  EXPECT_EQ(Call(server, "abc"), on_response_);
}

TEST_P(GrpcChannelTest, MalformedResponsesAreInternalErrors) {
  FakeServer server([](const auto&) { return FakeServer::Reply{.bytes = "\x7A\x7F"}; });
  EXPECT_EQ(Call(server, "abc").code(), absl::StatusCode::kInternal);
}

TEST_P(GrpcChannelTest, DeadlinesEndCallsThatNobodyAnswers) {
  FakeServer server([](const auto&) { return FakeServer::Reply{.never = true}; });
  const std::string large(1 << 20, 'x');
  EXPECT_EQ(Call(server, large, {.deadline = SteadyNow() + absl::Milliseconds(200)}).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_P(GrpcChannelTest, CancelReachesACallInFlight) {
  CancelToken token;
  FakeServer server([&](const auto&) {
    token.Cancel();
    return FakeServer::Reply{.never = true};
  });
  EXPECT_EQ(
      Call(server, "abc", {.deadline = SteadyNow() + absl::Seconds(30), .cancel = token}).code(),
      absl::StatusCode::kCancelled);
}

// Only callers that wait are asked.
class WaitingCallerTest : public GrpcChannelTest {};

TEST_P(WaitingCallerTest, AnInterruptedWaitCancelsTheCall) {
  FakeServer server([](const auto&) { return FakeServer::Reply{.never = true}; });
  int asked = 0;
  const absl::Status status = Call(server, "abc", {.interrupted = [&] { return ++asked == 3; }});
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(asked, 3);
}

TEST_P(WaitingCallerTest, AnInterruptedWaitBetweenAttemptsCancelsIt) {
  std::atomic<int> calls = 0;
  FakeServer server([&](const auto&) {
    ++calls;
    return FakeServer::Reply{.status = kBusy, .pushback_ms = "3600000"};
  });
  GrpcChannel channel(*GrpcTarget(server.target()), {});
  const absl::Status status = Call(channel, "abc", {.interrupted = [] { return true; }});
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(calls, 1);
}

TEST_P(GrpcChannelTest, CancelledTokensStopCallsAtOnce) {
  FakeServer server([](const auto&) { return FakeServer::Reply{.never = true}; });
  CancelToken token;
  token.Cancel();
  EXPECT_EQ(
      Call(server, "abc", {.deadline = SteadyNow() + absl::Seconds(30), .cancel = token}).code(),
      absl::StatusCode::kCancelled);
}

TEST_P(GrpcChannelTest, NobodyThereIsUnavailable) {
  const TempDir dir;
  GrpcChannel channel(*GrpcTarget("unix:" + dir.path() + "/socket"), {}, &timer_);
  EXPECT_EQ(Call(channel, "abc", {.deadline = SteadyNow() + absl::Seconds(30)}).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_GE(timer_.waited, kReconnectWait) << "before it gives up";
  EXPECT_LE(timer_.waited, kReconnectWait + absl::Seconds(1));
}

TEST_P(GrpcChannelTest, ARetryWaitsForAServerThatIsReplaced) {
  const TempDir dir;
  const std::string target = "unix:" + dir.path() + "/socket";  // no other process can listen there
  StartingTimer timer(target);
  GrpcChannel channel(*GrpcTarget(target), {.max_attempts = 2}, &timer);
  timer.connects = channel.channel();
  const absl::Status status = Call(channel, "abc", {.deadline = SteadyNow() + absl::Seconds(30)});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(timer.calls, 1);
}

TEST_P(GrpcChannelTest, RefusesMessagesThatGrpcCannotCarry) {
  absl::Status result;
  GrpcChannel channel("dns:///127.0.0.1:1", {}, &timer_);
  RawCall call{.method = "/a.B/C"};
  // Never read: the size alone decides.
  call.raw = {{reinterpret_cast<const std::byte*>(&call), size_t{3} << 30}};
  call.done = [&](absl::Status status) { result = std::move(status); };
  channel.Start(std::move(call), {});
  EXPECT_EQ(result.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(result.message()), HasSubstr("split"));
}

TEST_P(GrpcChannelTest, ChannelsAreConnectionsOfTheirOwn) {
  std::mutex mutex;
  std::set<std::string> peers;
  FakeServer server([&](const FakeServer::Request& request) {
    std::lock_guard lock(mutex);
    peers.insert(request.peer);
    return FakeServer::Reply{};
  });
  GrpcChannel channel(*GrpcTarget(server.target()), {.channels = 3}, &timer_);
  const CallContext context{.deadline = SteadyNow() + absl::Seconds(30)};
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(Call(channel, "abc", context).ok());
  EXPECT_THAT(peers, SizeIs(3));
}

INSTANTIATE_TEST_SUITE_P(CallerWaits, GrpcChannelTest, ::testing::Bool());
INSTANTIATE_TEST_SUITE_P(CallerWaits, WaitingCallerTest, ::testing::Values(true));

// The call's own end releases the connection then, on one of gRPC's threads.
TEST(GrpcChannelEndTest, CallsMayOutliveTheirChannel) {
  for (int i = 0; i < 20; ++i) {
    auto channel = std::make_unique<GrpcChannel>("unix:/nonexistent/phasor.sock",
                                                 ClientOptions{.max_attempts = 1});
    absl::Notification done;
    absl::Status result;
    RawCall call{.method = "/a.B/C", .header = "x"};
    call.done = [&](absl::Status status) {
      result = std::move(status);
      done.Notify();
    };
    channel->Start(std::move(call), {.deadline = SteadyNow() + absl::Seconds(30)});
    channel.reset();
    done.WaitForNotification();
    EXPECT_EQ(result.code(), absl::StatusCode::kUnavailable);
  }
}

TEST(GrpcTargetTest, NamesWhatGrpcNames) {
  EXPECT_EQ(*GrpcTarget("phasor:50051"), "dns:///phasor:50051");
  EXPECT_EQ(*GrpcTarget("127.0.0.1:1"), "dns:///127.0.0.1:1");
  EXPECT_EQ(*GrpcTarget("[::1]:65535"), "dns:///[::1]:65535");
  for (const char* kept : {"dns:///phasor:50051", "dns:phasor:1", "unix:/run/phasor.sock",
                           "unix:///run/phasor.sock", "ipv4:10.0.0.1:50051"}) {
    EXPECT_EQ(*GrpcTarget(kept), kept);
  }
}

TEST(GrpcTargetTest, RejectsWhatIsNoAddress) {
  for (const char* bad : {"", "phasor", "phasor:", ":50051", "phasor:0", "phasor:65536",
                          "phasor:http", "http://phasor:80", "inproc:x", "unix:", "dns:"}) {
    EXPECT_EQ(GrpcTarget(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace phasor::client_internal
