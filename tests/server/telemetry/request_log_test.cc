// SPDX-License-Identifier: Apache-2.0
// Tests log lines about calls: content, sampling, limits and trace ids.
#include "server/telemetry/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "server/base/log.h"

namespace phasor::telemetry {
namespace {

using ::testing::HasSubstr;

void End(RequestLog* log, int code, const std::string& message = "",
         const std::string& parent_id = "00f067aa0ba902b7") {
  const auto peer = [] { return std::string("ipv4:10.0.0.1:4711"); };
  const auto traceparent = [&] {
    return "00-4bf92f3577b34da6a3ce929d0e0e4736-" + parent_id + "-01";
  };
  log->Ended({"phasor.v1.PositionEmbeddingService/Encode", code, message, absl::Milliseconds(250),
              7, 9, peer, traceparent});
}

class RequestLogTest : public ::testing::Test {
 protected:
  RequestLogTest() { SetLogLevel(LogLevel::kInfo); }
  // Lines that `calls` ended with `code` make.
  static std::string LinesOf(RequestLog* log, int calls, int code) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < calls; ++i) End(log, code, "item: wrong");
    return ::testing::internal::GetCapturedStderr();
  }
  static int64_t Count(const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
};

TEST_F(RequestLogTest, ALineSaysWhatWasCalledByWhomAndHowItWent) {
  RequestLog log({});
  const std::string line = LinesOf(&log, 1, 3);
  for (const char* part :
       {R"("level":"warn")", R"("event":"call")",
        R"("method":"phasor.v1.PositionEmbeddingService/Encode")", R"("code":"INVALID_ARGUMENT")",
        R"("message":"item: wrong")", R"("seconds":0.25)", R"("received_bytes":9)",
        R"("sent_bytes":7)", R"("peer":"ipv4:10.0.0.1:4711")",
        R"("trace_id":"4bf92f3577b34da6a3ce929d0e0e4736")"}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
}

TEST_F(RequestLogTest, ATraceThatWouldNotBeContinuedHasNoId) {
  RequestLog log({});
  ::testing::internal::CaptureStderr();
  End(&log, 3, "item: wrong", /*parent_id=*/std::string(16, '0'));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(R"("trace_id":"")"));
}

TEST_F(RequestLogTest, CallersDoNotDecideHowLongALineIs) {
  RequestLog log({});
  const auto nothing = [] { return std::string(); };
  const std::string method(8192, '"'),
      message(8192, '\1');  // the longest that JSON makes of a byte
  ::testing::internal::CaptureStderr();
  log.Ended({method, 12, message, absl::Seconds(1), 0, std::nullopt, nothing, nothing});
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_LT(line.size(), 4096u) << "a pipe takes so much without waiting for its reader";
  EXPECT_THAT(line, HasSubstr("...\",\"code\":\"UNIMPLEMENTED\""));
}

TEST_F(RequestLogTest, SuccessesAreSampledAndSilentUnlessAskedFor) {
  RequestLog silent({});
  EXPECT_EQ(LinesOf(&silent, 100, 0), "");
  RequestLog sampled({.every = 10});
  EXPECT_EQ(Count(LinesOf(&sampled, 100, 0)), 10);
}

TEST_F(RequestLogTest, FailuresAreBoundedPerSecondAndWhatIsLeftOutIsCounted) {
  RequestLog log({.max_failures_per_second = 5, .now = [this] { return now_; }});
  EXPECT_EQ(Count(LinesOf(&log, 100, 5)), 5);
  now_ += absl::Seconds(1);
  const std::string next = LinesOf(&log, 2, 5);
  EXPECT_THAT(next, HasSubstr(R"("left_out":95)"));
  EXPECT_EQ(Count(next), 2);
}

TEST_F(RequestLogTest, StrangersDoNotKeepTheLinesOfOthersOut) {
  RequestLog log(
      {.max_failures_per_second = 5, .max_refusals_per_second = 2, .now = [this] { return now_; }});
  EXPECT_EQ(Count(LinesOf(&log, 100, 16) + LinesOf(&log, 100, 7)), 2);
  EXPECT_EQ(Count(LinesOf(&log, 5, 13)), 5);
  now_ += absl::Seconds(1);
  EXPECT_THAT(LinesOf(&log, 1, 16), HasSubstr(R"("left_out":198)"));
  EXPECT_THAT(LinesOf(&log, 1, 13), HasSubstr(R"("left_out":0)"));
}

TEST_F(RequestLogTest, AClockThatIsSetBackDoesNotSilenceFailures) {
  RequestLog log({.max_failures_per_second = 1, .now = [this] { return now_; }});
  EXPECT_EQ(Count(LinesOf(&log, 2, 5)), 1);
  now_ -= absl::Hours(1);
  EXPECT_EQ(Count(LinesOf(&log, 1, 5)), 1);
}

}  // namespace
}  // namespace phasor::telemetry
