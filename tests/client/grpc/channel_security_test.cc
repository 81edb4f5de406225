// SPDX-License-Identifier: Apache-2.0
// Tests where a client refuses to use its secrets, and the replacement of a token.
// tests/e2e/tls_test.cc and access_test.cc use real servers.
#include "client/grpc/channel_security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::client_internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using ::testing::Not;
using testing::StatusIs;

absl::StatusOr<ChannelSecurity> Far(const ClientOptions& options) {
  return ChannelSecurity::Make(options, /*this_host=*/false, /*unix_socket=*/false);
}

TEST(ChannelSecurityTest, ATokenInPlaintextStaysOnThisHostUnlessAllowed) {
  const ClientOptions options = {.token = "abc"};
  EXPECT_THAT(Far(options), StatusIs(kInvalid, AllOf(HasSubstr("token: would be sent in plaintext"),
                                                     Not(HasSubstr("abc")))));
  EXPECT_THAT(ChannelSecurity::Make(options, true, false), IsOk());
  EXPECT_THAT(ChannelSecurity::Make(options, true, true), IsOk());
  EXPECT_THAT(Far({.token = "abc", .token_over_plaintext = true}), IsOk());
  EXPECT_THAT(Far({.tls = TlsOptions{}, .token = "abc"}), IsOk());
}

TEST(ChannelSecurityTest, FilesAreCheckedBeforeTheFirstCall) {
  const testing::TempDir dir;
  EXPECT_THAT(Far({.tls = TlsOptions{.ca_file = dir.path() + "/none"}}),
              StatusIs(kInvalid, HasSubstr("tls.ca_file: ")));
  dir.Write("text", "no PEM");
  EXPECT_THAT(Far({.tls = TlsOptions{.ca_file = dir.path() + "/text"}}),
              StatusIs(kInvalid, HasSubstr("is not PEM")));
  EXPECT_THAT(ChannelSecurity::Make({.tls = TlsOptions{}}, true, true),
              StatusIs(kInvalid, HasSubstr("Unix socket")));
  EXPECT_THAT(Far({.tls = TlsOptions{}, .token_file = dir.path() + "/none"}),
              StatusIs(kInvalid, HasSubstr("token_file: ")));
}

TEST(ChannelSecurityTest, WhatAHeaderCannotCarryIsNoTokenAndIsNotRepeated) {
  for (const char* token : {"a line", "a\nline", "line\x80"}) {
    EXPECT_THAT(TokenSource::Make({.token = token}),
                StatusIs(kInvalid, AllOf(HasSubstr("token: not a token"), Not(HasSubstr("line")))));
  }
  EXPECT_THAT(TokenSource::Make({.token = std::string(4097, 'x')}),
              StatusIs(kInvalid, HasSubstr("not a token")));
}

// Alone in its process, because Abseil looks for the file once.
TEST(ConnectErrnoTest, ThreadsThatQueueForAMutexLeaveIt) {
  const absl::StatusOr<ChannelSecurity> security = Far({});
  ASSERT_THAT(security, IsOk());
  security->Connect("127.0.0.1:1", {});
  absl::Mutex mutex;
  int waiting = 0;
  bool end = false;
  const auto wait = [&] {
    absl::MutexLock lock(&mutex);
    ++waiting;
    errno = 0;
    mutex.Await(absl::Condition(&end));
    EXPECT_NE(errno, ENOENT);
  };
  std::thread first(wait), second(wait);
  const auto both = [&] { return waiting == 2; };
  errno = 0;
  mutex.LockWhen(absl::Condition(&both));
  EXPECT_NE(errno, ENOENT);
  end = true;
  mutex.Unlock();
  first.join();
  second.join();
}

TEST(TokenSourceTest, AFileIsReadAgainAndABadOneIsNotTaken) {
  const testing::TempDir dir;
  dir.Write("token", "first\n");
  const auto source = TokenSource::Make({.token_file = dir.path() + "/token"});
  ASSERT_THAT(source, IsOk());
  absl::Time now = absl::Now();
  EXPECT_EQ((*source)->Token(now), "first");
  dir.Write("token", "second\n");
  EXPECT_EQ((*source)->Token(now), "first");
  EXPECT_EQ((*source)->Token(now += absl::Seconds(2)), "second");
  dir.Write("token", "");
  EXPECT_EQ((*source)->Token(now += absl::Seconds(2)), "second");
  dir.Write("token", "third");
  EXPECT_EQ((*source)->Token(now + absl::Milliseconds(500)), "second");
  EXPECT_EQ((*source)->Token(now += absl::Seconds(2)), "third");
}

}  // namespace
}  // namespace phasor::client_internal
