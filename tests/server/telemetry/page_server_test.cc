// SPDX-License-Identifier: Apache-2.0
// Tests the HTTP server of the metrics page: requests, limits, slow and silent readers.
#include "server/telemetry/page_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/socket_client.h"

namespace phasor::telemetry {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

void Send(const FileDescriptor& fd, const std::string& text) {
  ASSERT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
}

// All that comes until the other side closes; what came, if that takes more than 20 s. `end`: what
// the last read returned, 0 if the connection was not reset.
std::string ReadAll(const FileDescriptor& fd, ssize_t* end = nullptr) {
  const timeval patience = {20, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  std::string all;
  char part[4096];
  ssize_t got = 0;
  while ((got = recv(fd.get(), part, sizeof(part), 0)) > 0) all.append(part, got);
  if (end != nullptr) *end = got;
  return all;
}

class PageServerTest : public ::testing::Test {
 protected:
  PageServerTest() {
    options_.addresses = {"127.0.0.1:0"};
    options_.path = "/metrics";
    options_.page = [this](std::string_view accept) {
      accept_ = accept;
      return Page{"text/plain; version=0.0.4; charset=utf-8", page_};
    };
  }

  void Start() {
    auto server = PageServer::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  FileDescriptor Connect() { return ConnectTo(server_->addresses()[0]); }

  std::string Ask(const std::string& request) {
    const FileDescriptor fd = Connect();
    Send(fd, request);
    return ReadAll(fd);
  }

  PageServerOptions options_;
  std::string page_ = "x 1\n";
  std::string accept_;  // of the last request
  std::unique_ptr<PageServer> server_;
};

TEST_F(PageServerTest, AnswersWithThePageAndCloses) {
  Start();
  EXPECT_EQ(Ask(kGet),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; "
            "charset=utf-8\r\nContent-Length: 4\r\n"
            "Connection: close\r\n\r\nx 1\n");
  page_ = "x 2\n";
  EXPECT_THAT(Ask("GET /metrics?a=b HTTP/1.0\r\n\r\n"), EndsWith("\r\n\r\nx 2\n"));
}

TEST_F(PageServerTest, ThePageKnowsWhatTheReaderAccepts) {
  Start();
  Ask("GET /metrics HTTP/1.1\r\nHost: here\r\nACCEPT: a/b,c\r\nUser-Agent: accept: no\r\n\r\n");
  EXPECT_EQ(accept_, " a/b,c");
  Ask("GET /metrics HTTP/1.1\r\nX-Accept: a\r\nAccepted: b\r\n\r\n");
  EXPECT_EQ(accept_, "");
}

TEST_F(PageServerTest, AnswersHeadWithoutThePage) {
  Start();
  const std::string answer = Ask("HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n"));
}

TEST_F(PageServerTest, RefusesWhatIsNotAGetOfThePage) {
  Start();
  const struct {
    std::string request;
    std::string status;
  } cases[] = {
      {"GET / HTTP/1.1\r\n\r\n", "404"},
      {"GET /metrics/ HTTP/1.1\r\n\r\n", "404"},
      {"GET /metricsx HTTP/1.1\r\n\r\n", "404"},
      {"POST /metrics HTTP/1.1\r\n\r\n", "405"},
      {"GET /metrics\r\n\r\n", "400"},
      {"GET /metrics HTTP/2.0\r\n\r\n", "400"},
      {"\r\n\r\n", "400"},
      {"GET /metrics HTTP/1.1\r\nX: " + std::string(9000, 'x'), "431"},
  };
  for (const auto& [request, status] : cases) {
    const std::string answer = Ask(request);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + status + " ")) << request;
    EXPECT_THAT(answer, Not(HasSubstr("x 1\n"))) << request;
  }
}

// A reset could take the answer from a reader, and shows as an error.
TEST_F(PageServerTest, WhoStillSendsIsAnsweredAndNotReset) {
  Start();
  const std::string more(100'000, 'x');
  for (const std::string& request : {"POST /metrics HTTP/1.1\r\n\r\n" + more,
                                     "GET /metrics HTTP/1.1\r\nX: " + more, kGet + more}) {
    const FileDescriptor fd = Connect();
    Send(fd, request);
    ssize_t end = -1;
    EXPECT_THAT(ReadAll(fd, &end), StartsWith("HTTP/1.1 "));
    EXPECT_EQ(end, 0);
  }
}

TEST_F(PageServerTest, TakesARequestInPieces) {
  Start();
  const FileDescriptor fd = Connect();
  for (const char c : std::string(kGet)) Send(fd, std::string(1, c));
  EXPECT_THAT(ReadAll(fd), EndsWith("\r\n\r\nx 1\n"));
}

TEST_F(PageServerTest, AnswersBesideMoreSilentConnectionsThanItKeeps) {
  options_.max_connections = 4;
  options_.request_time = absl::InfiniteDuration();  // a day
  Start();
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Connect());
  EXPECT_THAT(Ask(kGet), EndsWith("\r\n\r\nx 1\n"));
  EXPECT_TRUE(WaitForClose(silent.front().get())) << "the oldest makes room";
  Send(silent.back(), kGet);
  EXPECT_THAT(ReadAll(silent.back()), EndsWith("\r\n\r\nx 1\n")) << "the newest stay";
}

TEST_F(PageServerTest, EndsAConnectionThatTakesTooLongToAsk) {
  options_.request_time = absl::Milliseconds(10);
  Start();
  const FileDescriptor fd = Connect();
  Send(fd, "GET /metrics");
  EXPECT_TRUE(WaitForClose(fd.get()));
}

TEST_F(PageServerTest, AReaderThatDoesNotReadDelaysNobodyAndGetsItsPageLater) {
  page_ = std::string(32 << 20, 'x');  // more than the buffers of a connection
  Start();
  const FileDescriptor slow = Connect();
  Send(slow, kGet);
  char first = 0;
  ASSERT_EQ(recv(slow.get(), &first, 1, 0), 1);  // its page has been made
  const FileDescriptor fd = Connect();
  Send(fd, "HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(ReadAll(fd), StartsWith("HTTP/1.1 200 OK\r\n"));
  const std::string rest = ReadAll(slow);
  EXPECT_EQ(rest.size() - (rest.find("\r\n\r\n") + 4), page_.size());
}

TEST_F(PageServerTest, EndsAReaderThatTakesTooLong) {
  page_ = std::string(32 << 20, 'x');
  options_.answer_time = absl::ZeroDuration();
  Start();
  const FileDescriptor fd = Connect();
  Send(fd, kGet);
  char first = 0;
  ASSERT_EQ(recv(fd.get(), &first, 1, 0), 1);
  EXPECT_LT(ReadAll(fd).size(), page_.size());
}

TEST_F(PageServerTest, EndsAtOnceWhateverIsUnderWay) {
  page_ = std::string(32 << 20, 'x');
  options_.request_time = options_.answer_time = absl::Hours(1);
  Start();
  const FileDescriptor silent = Connect();
  const FileDescriptor reading = Connect();
  Send(reading, kGet);
  char first = 0;
  ASSERT_EQ(recv(reading.get(), &first, 1, 0), 1);
  const auto begun = std::chrono::steady_clock::now();
  server_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::minutes(1));
}

TEST_F(PageServerTest, ListensOnSeveralAddressesAndTellsOneThatIsTaken) {
  options_.addresses = {"127.0.0.1:0", "127.0.0.2:0"};
  Start();
  ASSERT_EQ(server_->addresses().size(), 2u);
  EXPECT_THAT(server_->addresses()[1], StartsWith("127.0.0.2:"));
  options_.addresses = {server_->addresses()[0]};
  const auto second = PageServer::Start(options_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace phasor::telemetry
