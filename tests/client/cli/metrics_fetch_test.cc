// SPDX-License-Identifier: Apache-2.0
// Tests fetching a metrics page: addresses, answers, and everything that is refused.
#include "client/cli/metrics_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/status/status.h"
#include "tests/support/bound_port.h"
#include "tests/support/status_matchers.h"

namespace phasor::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::Duration kLongTime = absl::Seconds(60);

MetricsUrl UrlOf(const testing::BoundPort& port) {
  return {.host = "127.0.0.1", .port = port.port(), .path = "/metrics"};
}

// Answers every request with the same bytes and hangs up; with no bytes, waits to be gone.
class CannedServer {
 public:
  explicit CannedServer(std::string answer) : answer_(std::move(answer)) {
    EXPECT_EQ(listen(port_.socket(), 8), 0);
    thread_ = std::thread([this] { Serve(); });
  }
  ~CannedServer() {
    shutdown(port_.socket(), SHUT_RDWR);
    thread_.join();
  }
  CannedServer(const CannedServer&) = delete;
  CannedServer& operator=(const CannedServer&) = delete;

  MetricsUrl url() const { return UrlOf(port_); }
  // After an answer.
  const std::string& request() const { return request_; }

 private:
  void Serve() {
    for (int client; (client = accept(port_.socket(), nullptr, nullptr)) >= 0; close(client)) {
      std::string request;
      char bytes[4096];
      ssize_t size = 0;
      while (request.find("\r\n\r\n") == std::string::npos &&
             (size = read(client, bytes, sizeof(bytes))) > 0) {
        request.append(bytes, static_cast<size_t>(size));
      }
      request_ = request;
      if (answer_.empty()) {
        while (read(client, bytes, sizeof(bytes)) > 0) {
        }
      }
      for (size_t sent = 0; sent < answer_.size(); sent += static_cast<size_t>(size)) {
        size = send(client, answer_.data() + sent, answer_.size() - sent, MSG_NOSIGNAL);
        if (size <= 0) break;
      }
    }
  }

  const std::string answer_;
  std::string request_;
  const testing::BoundPort port_;
  std::thread thread_;
};

std::string HttpAnswer(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status +
         "\r\nContent-Type: text/plain\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

TEST(ParseMetricsUrlTest, AddressesAndUrlsAreTaken) {
  const struct {
    const char* text;
    const char* url;
  } cases[] = {
      {"127.0.0.1:9464", "http://127.0.0.1:9464/metrics"},
      {"http://pod.example:80", "http://pod.example:80/metrics"},
      {"http://pod.example:80/", "http://pod.example:80/metrics"},
      {"pod:65535/some/path?x=1", "http://pod:65535/some/path?x=1"},
      {"[::1]:9464", "http://[::1]:9464/metrics"},
  };
  for (const auto& [text, url] : cases) {
    const auto parsed = ParseMetricsUrl(text);
    ASSERT_THAT(parsed, IsOk()) << text;
    EXPECT_EQ(parsed->Text(), url);
  }
  EXPECT_EQ(ParseMetricsUrl("[::1]:9464")->host, "::1");
}

TEST(ParseMetricsUrlTest, OtherTextIsRefused) {
  for (const std::string text :
       {"", "localhost", ":9464", "a:", "a:0", "a:65536", "a:9464x", "a:-1", "::1:9464", "[]:1",
        "https://a:9464", "ftp://a:21", "/metrics"}) {
    EXPECT_THAT(ParseMetricsUrl(text), StatusIs(kInvalid, StartsWith("--metrics: \"" + text)))
        << text;
  }
}

TEST(FetchMetricsTest, ThePageIsWhatTheServerAnswers) {
  const CannedServer server(HttpAnswer("200 OK", "up 1\n"));
  const auto page = FetchMetrics(server.url(), kLongTime);
  ASSERT_THAT(page, IsOk());
  EXPECT_EQ(*page, "up 1\n");
  EXPECT_THAT(server.request(), StartsWith("GET /metrics HTTP/1.0\r\n"));
}

TEST(FetchMetricsTest, OtherStatusesAreErrors) {
  for (const std::string status : {"404 Not Found", "302 Found", "500 Oops"}) {
    const CannedServer server(HttpAnswer(status, "up 1\n"));
    EXPECT_THAT(FetchMetrics(server.url(), kLongTime),
                StatusIs(kUnavailable, HasSubstr("HTTP status " + status.substr(0, 3))));
  }
}

TEST(FetchMetricsTest, AnAnswerThatIsNotHttpIsAnError) {
  for (const std::string answer : {"220 mail ready\r\n", "\x01\x02", "HTTP/1.1 200 OK\r\n"}) {
    const CannedServer server(answer);
    EXPECT_THAT(FetchMetrics(server.url(), kLongTime),
                StatusIs(kUnavailable, HasSubstr("no answer in HTTP")));
  }
}

TEST(FetchMetricsTest, APageThatIsCutShortIsAnError) {
  std::string answer = HttpAnswer("200 OK", "up 1\ndown 2\n");
  answer.resize(answer.size() - 3);
  const CannedServer server(answer);
  EXPECT_THAT(FetchMetrics(server.url(), kLongTime), StatusIs(kUnavailable, HasSubstr("cannot")));
}

TEST(FetchMetricsTest, APageBeyondTheLimitIsNotTaken) {
  const CannedServer server(HttpAnswer("200 OK", std::string(kMaxMetricsPageBytes + 65536, '#')));
  EXPECT_THAT(FetchMetrics(server.url(), kLongTime),
              StatusIs(kUnavailable, HasSubstr("the page is too large")));
}

TEST(FetchMetricsTest, AServerThatDoesNotAnswerIsGivenUp) {
  const CannedServer server("");
  EXPECT_THAT(FetchMetrics(server.url(), absl::Milliseconds(50)),
              StatusIs(kUnavailable, HasSubstr("no answer in time")));
}

TEST(FetchMetricsTest, NobodyThereSaysWhatToDo) {
  const testing::BoundPort port;
  EXPECT_THAT(FetchMetrics(UrlOf(port), kLongTime),
              StatusIs(kUnavailable, AllOf(StartsWith("cannot read http://127.0.0.1:"),
                                           HasSubstr("connection refused; start the server with "
                                                     "--metrics-listen"))));
}

}  // namespace
}  // namespace phasor::cli
