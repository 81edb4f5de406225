// SPDX-License-Identifier: Apache-2.0
// Tests `phasor top` as a user calls it, with a server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "absl/time/clock.h"
#include "tests/support/bound_port.h"
#include "tests/support/pty.h"
#include "tests/support/run_shell.h"
#include "tests/support/running_server.h"
#include "tests/support/subprocess.h"

namespace phasor::cli {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

testing::ShellOutcome Top(const std::string& arguments) {
  return testing::RunShell(PHASOR_BINARY " top " + arguments);
}

std::unique_ptr<Server> ServerWithMetrics() {
  ServerOptions options = testing::TestOptions();
  options.metrics_listen = {"127.0.0.1:0"};
  return testing::StartServer(options);
}

class TopCommandTest : public ::testing::Test {
 protected:
  // One for all tests: to stop serving metrics takes two seconds.
  static void SetUpTestSuite() { shared_server_ = ServerWithMetrics().release(); }
  static void TearDownTestSuite() {
    delete shared_server_;
    shared_server_ = nullptr;
  }

  std::string Here() const { return " --metrics " + metrics_ + " --interval 0.1 "; }
  // On a terminal of 80 columns.
  std::unique_ptr<testing::Pty> Watch(const std::string& more = "") const {
    const std::string command = "exec " PHASOR_BINARY " top " + Here() + more;
    return std::make_unique<testing::Pty>(80, 24, [&] {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      return 98;
    });
  }

  static inline Server* shared_server_ = nullptr;
  std::string metrics_ = shared_server_->metrics_listeners()[0];
};

TEST_F(TopCommandTest, OneFrameIsPrintedWithoutEscapeCodes) {
  const auto run = Top(Here() + "--once");
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.text,
              AllOf(StartsWith("phasor "), HasSubstr("  SERVING  up "), HasSubstr(metrics_ + "\n"),
                    HasSubstr("\nMETHOD "), HasSubstr("plan cache hits"), Not(HasSubstr("\x1b"))));
}

TEST_F(TopCommandTest, AnEmptyLineIsBetweenFrames) {
  const auto run = Top(Here() + "--count 3");
  EXPECT_EQ(run.status, 0);
  size_t frames = 0;
  for (size_t at = 0; (at = run.text.find("phasor ", at)) != std::string::npos; ++at) {
    if (at > 0) {
      EXPECT_EQ(run.text.substr(at - 2, 2), "\n\n");
    }
    ++frames;
  }
  EXPECT_EQ(frames, 3u);
}

TEST_F(TopCommandTest, NumbersAreThoseOfTheCallsBetweenReadings) {
  const testing::Subprocess load({PHASOR_BINARY, "bench", "--server",
                                  shared_server_->listeners()[0], "--preset", "transformer",
                                  "--dim", "16", "--tokens", "4", "--duration", "600"});
  nlohmann::json last;
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  do {  // until the load has begun
    const auto run = Top("--json --once --interval 0.5 --metrics " + metrics_);
    last = nlohmann::json::parse(run.text, nullptr, false);
    ASSERT_TRUE(last.is_object()) << run.text;
  } while (last["calls_per_second"] == 0 && absl::Now() < deadline);
  EXPECT_GT(last["calls_per_second"], 0);
  EXPECT_GE(last["seconds"], 0.5);
  EXPECT_EQ(last["methods"][0]["method"], "Encode");
  EXPECT_EQ(last["methods"][0]["errors_per_second"], 0);
  EXPECT_GT(last["methods"][0]["p50_ms"], 0);
  EXPECT_GT(last["sent_bytes_per_second"], last["received_bytes_per_second"]);
  EXPECT_GT(last["uptime_seconds"], 0);
  EXPECT_EQ(last["serving"], true);
}

TEST_F(TopCommandTest, JsonIsAnObjectALine) {
  const auto run = Top(Here() + "--json --count 2");
  EXPECT_EQ(run.status, 0);
  std::istringstream in(run.text);
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    EXPECT_EQ(json["metrics"], "http://" + metrics_ + "/metrics") << line;
  }
  EXPECT_EQ(lines, 2);
}

TEST_F(TopCommandTest, ATerminalIsRedrawnUntilKeyQ) {
  const auto pty = Watch();
  EXPECT_THAT(pty->ReadUntil("the first numbers come after"), HasSubstr("\x1b[?1049h"));
  for (int frame = 0; frame < 3; ++frame) {
    EXPECT_THAT(pty->ReadUntil("plan cache hits"), EndsWith("plan cache hits"));
  }
  pty->Send("q");
  EXPECT_THAT(pty->ReadUntil("\x1b[?1049l"), EndsWith("\x1b[?1049l"));
  const int status = pty->Wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(TopCommandTest, FramesFollowTheWindow) {
  const auto pty = Watch();
  pty->ReadUntil("METHOD             CALLS/S");
  pty->Resize(120, 24);
  const std::string wide = "METHOD" + std::string(45, ' ') + " CALLS/S";
  EXPECT_THAT(pty->ReadUntil(wide), EndsWith(wide));
}

TEST_F(TopCommandTest, CountedFramesEndByThemselves) {
  const auto pty = Watch("--count 2");
  EXPECT_THAT(pty->ReadUntil("\x1b[?1049l"), HasSubstr("plan cache hits"));
  EXPECT_EQ(WEXITSTATUS(pty->Wait()), 0);
}

TEST_F(TopCommandTest, OneFrameStaysOnTheTerminal) {
  const auto pty = Watch("--once");
  EXPECT_THAT(pty->ReadUntil("plan cache hits"),
              AllOf(StartsWith("phasor "), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(WEXITSTATUS(pty->Wait()), 0);
}

TEST_F(TopCommandTest, WhenTheServerIsGoneTheFrameStaysAndSaysSo) {
  std::unique_ptr<Server> server = ServerWithMetrics();
  metrics_ = server->metrics_listeners()[0];
  const auto pty = Watch();
  pty->ReadUntil("plan cache hits");
  server.reset();
  EXPECT_THAT(pty->ReadUntil("cannot read http://"), EndsWith("cannot read http://"));
  EXPECT_THAT(pty->ReadUntil("plan cache hits"), HasSubstr("SERVING"));
  pty->Send("q");
  EXPECT_EQ(WEXITSTATUS(pty->Wait()), 0);
}

TEST_F(TopCommandTest, ErrorsSayWhatIsWrong) {
  const std::string grpc = shared_server_->listeners()[0];
  EXPECT_THAT(Top("--once --metrics " + grpc).text,
              StartsWith("phasor: UNAVAILABLE: cannot read http://" + grpc + "/metrics: "));
  const testing::BoundPort free_port;
  const std::string metrics = "127.0.0.1:" + std::to_string(free_port.port());
  const auto nobody = Top("--metrics " + metrics);
  EXPECT_EQ(nobody.status, 1);
  EXPECT_EQ(nobody.text,
            "phasor: UNAVAILABLE: cannot read http://" + metrics +
                "/metrics: connection refused; start the server with --metrics-listen\n");
  EXPECT_THAT(Top("--metrics nowhere").text, StartsWith("phasor: INVALID_ARGUMENT: --metrics: "));
  EXPECT_EQ(Top("--interval 0.05").status, 2);
  EXPECT_EQ(Top("--interval 3601").status, 2);
  EXPECT_EQ(Top("--once --count 2").status, 2);
  EXPECT_EQ(Top("--server 127.0.0.1:1").status, 2);
}

TEST_F(TopCommandTest, HelpSaysWhereNumbersAreFrom) {
  EXPECT_THAT(Top("--help").text, HasSubstr("page for Prometheus"));
}

}  // namespace
}  // namespace phasor::cli
