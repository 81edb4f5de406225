// SPDX-License-Identifier: Apache-2.0
// Tests that a child of fork() gets errors, ends, and leaves the connection to its parent.
#include "client/grpc/forked.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "client/client.h"
#include "client/grpc/grpc_connection.h"
#include "tests/client/grpc/fake_server.h"

namespace phasor::client_internal {
namespace {

// Runs `what` in a child, and returns how it ended as waitpid does. A child that hangs is killed.
int EndOfChild(const std::function<void()>& what) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    what();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

// In a child: ends it with a number that says which condition failed.
void Require(bool condition, int number) {
  if (!condition) _exit(number);
}

void RequireRefused(const absl::Status& status, int number) {
  Require(absl::IsFailedPrecondition(status) &&
              absl::StrContains(status.message(), "before fork(); connect only in the child"),
          number);
}

class ForkedTest : public ::testing::Test {
 protected:
  bool Call() {
    const uint64_t before = calls_;
    const absl::Status status = client_->Encode({}, {1}).status();
    return absl::IsNotFound(status) && calls_ == before + 1;
  }

  std::atomic<uint64_t> calls_ = 0;
  FakeServer server_{[this](const FakeServer::Request&) {
    ++calls_;
    return FakeServer::Reply{.status = {grpc::StatusCode::NOT_FOUND, "seen"}};
  }};
  std::optional<Client> client_ = Client(*MakeGrpcConnection(server_.target(), {}));
};

TEST_F(ForkedTest, EveryKindOfCallIsRefusedInTheChildAndWorksInTheParent) {
  ASSERT_TRUE(Call());
  std::vector<float> x(8);
  const std::vector<RopeTensor> tensors = {MutableView(x, {2, 1, 4})};
  EXPECT_EQ(
      EndOfChild([&] {
        RequireRefused(client_->Encode({}, {1}).status(), 1);
        RequireRefused(client_->EncodeAsync({}, {1}).get().status(), 2);
        RequireRefused(client_->GetServerInfo().status(), 3);
        RequireRefused(client_->AllocateShared(64).status(), 4);
        RequireRefused(client_->CreateTable("t", View(x, {2, 4})).status(), 5);
        RequireRefused(
            client_->ApplyRoPEInChunks({.positions = IntegerRange{0, 1, 2}, .tensors = tensors})
                .status(),
            6);
        const auto stream = client_->StreamEncode();
        Require(!stream->Write(1, {}).ok(), 7);
        RequireRefused(stream->Finish(), 8);
        RequireRefused(MakeGrpcConnection("127.0.0.1:1", {}).status(), 9);
      }),
      0);
  EXPECT_TRUE(Call());
}

TEST_F(ForkedTest, AStreamOfTheParentIsRefusedToo) {
  const auto stream = client_->StreamEncode();
  EXPECT_EQ(EndOfChild([&] {
              Require(stream->WaitToWrite(), 1);
              Require(!stream->Read().has_value(), 2);
              stream->WritesDone();
              RequireRefused(stream->Finish(), 3);
            }),
            0);
}

TEST_F(ForkedTest, AChildMayDestroyItsCopiesAndEnd) {
  ASSERT_TRUE(Call());
  auto stream = client_->StreamEncode();
  const int status = EndOfChild([&] {
    stream.reset();
    client_.reset();
    std::exit(0);
  });
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_TRUE(Call());
}

}  // namespace
}  // namespace phasor::client_internal
