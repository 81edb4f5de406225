// SPDX-License-Identifier: Apache-2.0
// Tests the client's end of a lease socket against a socket of the test, which may answer anything.
// tests/e2e/client_shared_test.cc uses a correct one.
#include "client/shared/lease_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kernels/base/steady_time.h"
#include "tests/client/shared/answerer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::client_internal {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LeaseClientTest : public ::testing::Test {
 protected:
  absl::StatusOr<SharedMemory> Allocate(const std::vector<std::string>& answers,
                                        int64_t bytes = 4096) {
    const Answerer answerer(path_, answers);
    const auto client = LeaseClient::Connect(path_, "me");
    EXPECT_THAT(client, IsOk());
    auto memory = (*client)->Allocate(bytes);
    unlink(path_.c_str());
    return memory;
  }
  const testing::TempDir dir_;
  const std::string path_ = dir_.path() + "/s";
};

TEST_F(LeaseClientTest, PlacesAreFoundWhileTheServerLives) {
  std::shared_ptr<LeaseClient> client;
  SharedMemory memory;
  {
    const Answerer answerer(path_, {"OK token me\n", "OK\n"});
    client = *LeaseClient::Connect(path_, "me");
    memory = *client->Allocate(100);
    EXPECT_TRUE(memory.shared());
    EXPECT_TRUE(client->alive());
    const auto place = client->Find(memory.data() + 10, 90);
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->token, "token");
    EXPECT_EQ(place->offset, 10);
    EXPECT_FALSE(client->Find(memory.data() + 10, 91).has_value());
    EXPECT_FALSE(client->Find(memory.data() - 1, 1).has_value());
    EXPECT_FALSE(client->Find(reinterpret_cast<const std::byte*>(&client), 1).has_value());
    client->Find(nullptr, 0);
    memory = SharedMemory();  // the second request
  }
  EXPECT_FALSE(client->alive());
}

TEST_F(LeaseClientTest, MemoryOutlivesClientAndServer) {
  auto memory = Allocate({"OK token me\n"});
  ASSERT_THAT(memory, IsOk());
  std::memset(memory->data(), 1, 4096);
}

TEST_F(LeaseClientTest, AChildThatFreesItsCopyLeavesTheLeaseToItsParent) {
  const Answerer answerer(path_, {"OK token me\n", "OK\n"});
  const auto client = *LeaseClient::Connect(path_, "me");
  SharedMemory memory = *client->Allocate(4096);
  const pid_t child = fork();
  if (child == 0) {
    memory = SharedMemory();
    _exit(client->alive() || client->Allocate(1).ok() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(client->Find(memory.data(), 4096).has_value());
  memory = SharedMemory();  // the second request; after a third the connection would be closed
  EXPECT_FALSE(client->Find(memory.data(), 0).has_value());
}

TEST_F(LeaseClientTest, MoreThanTheHostHasIsRefusedBeforeItIsTaken) {
  EXPECT_THAT(Allocate({}, int64_t{1} << 60),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("must be at most the ")));
}

TEST_F(LeaseClientTest, AnotherServerIsNoticed) {
  EXPECT_THAT(Allocate({"OK token you\n"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another server")));
  EXPECT_THAT(Allocate({"OK token\n"}), StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

TEST_F(LeaseClientTest, RefusalsAndNonsenseAreErrors) {
  EXPECT_THAT(Allocate({"RESOURCE_EXHAUSTED lease: too many\n"}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("lease: too many")));
  EXPECT_THAT(Allocate({"what?\n"}), StatusIs(absl::StatusCode::kInternal, HasSubstr("what?")));
  EXPECT_THAT(Allocate({}), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed")));
  EXPECT_THAT(Allocate({std::string(5000, 'x')}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed")));
  EXPECT_THAT(Allocate({}, 0), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes: 0")));
}

// The first answer comes after the deadlines of two calls. It is not taken for that of the third,
// and its lease is ended.
TEST_F(LeaseClientTest, ADeadlineEndsTheWaitButNotTheConnection) {
  absl::Notification late;
  Answerer answerer(path_, {"OK late me\n", "OK\n", "OK token me\n"}, &late);
  const auto client = *LeaseClient::Connect(path_, "me");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(client->Allocate(4096, SteadyNow()),
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("allow more time")));
  }
  EXPECT_TRUE(client->alive());
  late.Notify();
  EXPECT_THAT(client->Allocate(4096), IsOk());
  EXPECT_THAT(answerer.Requests(), ElementsAre("LEASE\n", "RELEASE late\n", "LEASE\n"));
}

// Freed memory whose lease cannot be ended at once does not wait for the server. Its lease is ended
// before the next request.
TEST_F(LeaseClientTest, MemoryIsFreedWhileTheServerOwesAnAnswer) {
  absl::Notification late;
  Answerer answerer(path_, {"OK one me\n", "FAILED x\n", "OK\n", "OK two me\n"}, &late, 1);
  const auto client = *LeaseClient::Connect(path_, "me");
  {
    const auto memory = client->Allocate(4096);
    ASSERT_THAT(memory, IsOk());
    EXPECT_FALSE(client->Allocate(4096, SteadyNow()).ok());
  }
  EXPECT_TRUE(client->alive());
  late.Notify();
  EXPECT_THAT(client->Allocate(4096), IsOk());
  EXPECT_THAT(answerer.Requests(), ElementsAre("LEASE\n", "LEASE\n", "RELEASE one\n", "LEASE\n"));
}

// An answer that nobody has read does not hide the end.
TEST_F(LeaseClientTest, TheEndIsSeenBehindALateAnswer) {
  absl::Notification late;
  std::shared_ptr<LeaseClient> client;
  {
    const Answerer answerer(path_, {"OK late me\n"}, &late);
    client = *LeaseClient::Connect(path_, "me");
    EXPECT_FALSE(client->Allocate(4096, SteadyNow()).ok());
    late.Notify();
  }
  EXPECT_FALSE(client->alive());
}

// The server accepts nobody while it has as many connections as may wait.
TEST_F(LeaseClientTest, ADeadlineEndsTheWaitForASocketThatIsFull) {
  const int listener = ListenAt(path_, /*backlog=*/0);
  ASSERT_THAT(LeaseClient::Connect(path_, "me"), IsOk());
  const Later accepts([&] { close(accept(listener, nullptr, nullptr)); });
  EXPECT_THAT(LeaseClient::Connect(path_, "me", SteadyNow()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path_)));
  close(listener);
}

TEST_F(LeaseClientTest, WhereNobodyListensIsAnError) {
  EXPECT_THAT(LeaseClient::Connect(path_, "me"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path_)));
  EXPECT_THAT(LeaseClient::Connect(std::string(200, 'x'), "me"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no path")));
  EXPECT_THAT(LeaseClient::Connect("", "me"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no path")));
}

}  // namespace
}  // namespace phasor::client_internal
