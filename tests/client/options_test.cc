// SPDX-License-Identifier: Apache-2.0
// Tests the validation of client options, and cancel tokens.
#include "client/options.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;

TEST(OptionsTest, DefaultsAreValid) { EXPECT_TRUE(ClientOptions{}.Validate().ok()); }

TEST(OptionsTest, ErrorsNameTheOptionAndItsRange) {
  EXPECT_EQ(ClientOptions{.max_attempts = 0}.Validate().message(),
            "max_attempts: 0 is out of range; must be in [1, 10]");
  EXPECT_THAT(std::string(ClientOptions{.timeout = absl::ZeroDuration()}.Validate().message()),
              HasSubstr("timeout: "));
  EXPECT_EQ(ClientOptions{.channels = 65}.Validate().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ClientOptions{.inproc_threads = 0}.Validate().ok());
  EXPECT_EQ(ClientOptions{.staging_bytes = -1}.Validate().message(),
            "staging_bytes: -1 is out of range; must be at least 0");
  EXPECT_TRUE(ClientOptions{.staging_bytes = 0}.Validate().ok());
  EXPECT_FALSE(ClientOptions{.initial_backoff = -absl::Seconds(1)}.Validate().ok());
}

TEST(CancelTokenTest, RunsEveryHookOnce) {
  CancelToken token;
  int runs = 0;
  const auto first = token.OnCancel([&] { ++runs; });
  const auto second = token.OnCancel([&] { ++runs; });
  EXPECT_FALSE(token.cancelled());
  CancelToken(token).Cancel();
  token.Cancel();
  EXPECT_TRUE(token.cancelled());
  EXPECT_EQ(runs, 2);
}

TEST(MetadataTest, AcceptsTraceContextAndBytes) {
  EXPECT_TRUE(CheckMetadata({}).ok());
  EXPECT_TRUE(
      CheckMetadata({{"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
                     {"tracestate", ""},
                     {"x_1.key-bin", std::string("\0\xff\n", 3)}})
          .ok());
}

TEST(MetadataTest, RefusesWhatGrpcCannotSendAndNamesIt) {
  for (const char* key :
       {"", "Upper", "a b", ":path", "grpc-timeout", "te", "user-agent", "k\u00e9"}) {
    const absl::Status status = CheckMetadata({{"ok", "1"}, {key, "1"}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(status.message().find("metadata[1]: '"), 0u) << status;
  }
  for (const char* value : {"line\nbreak", "\x7f", "\u00e9"}) {
    EXPECT_NE(CheckMetadata({{"key", value}}).message().find("printable ASCII"), std::string::npos);
  }
}

TEST(CancelTokenTest, DroppedRegistrationsDoNotRun) {
  CancelToken token;
  int runs = 0;
  auto registration = token.OnCancel([&] { ++runs; });
  registration.reset();
  token.Cancel();
  EXPECT_EQ(runs, 0);
}

TEST(CancelTokenTest, HooksOfACancelledTokenRunAtOnce) {
  CancelToken token;
  token.Cancel();
  int runs = 0;
  const auto registration = token.OnCancel([&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST(CancelTokenTest, TakesRegistrationsWhileItCancels) {
  CancelToken token;
  std::atomic<int> runs = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 200; ++j) {
        const auto registration = token.OnCancel([&] { ++runs; });
        if (j == 100) token.Cancel();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(runs, 4 * 99);  // every registration after the thread's own Cancel
}

}  // namespace
}  // namespace phasor
