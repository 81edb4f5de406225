// SPDX-License-Identifier: Apache-2.0
// Tests `phasor bench` as a user calls it, in process and against a server in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/time/time.h"
#include "client/cli/metrics_fetch.h"
#include "client/cli/metrics_page.h"
#include "tests/support/eventually.h"
#include "tests/support/run_shell.h"
#include "tests/support/running_server.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace phasor::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

testing::ShellOutcome Bench(const std::string& arguments) {
  return testing::RunShell(PHASOR_BINARY " bench " + arguments);
}

nlohmann::json BenchJson(const std::string& arguments) {
  const testing::ShellOutcome run = Bench(arguments + " --json");
  EXPECT_EQ(run.status, 0) << run.text;
  return nlohmann::json::parse(run.text, nullptr, false);
}

class BenchCommandTest : public ::testing::Test {
 protected:
  BenchCommandTest() {
    ServerOptions options = testing::TestOptions();
    options.listen.push_back("unix:" + dir_.path() + "/phasor.sock");
    options.lease_socket = dir_.path() + "/lease.sock";
    options.metrics_listen = {"127.0.0.1:0"};
    server_ = testing::StartServer(options);
  }
  std::string Tcp() const { return "--server " + server_->listeners()[0]; }
  // Calls that the server has taken so far.
  int64_t CallsTaken() const {
    const MetricsUrl url = *ParseMetricsUrl(server_->metrics_listeners()[0]);
    const auto page = FetchMetrics(url, absl::Seconds(30));
    EXPECT_TRUE(page.ok()) << page.status();
    const auto metrics = MetricsPage::Parse(*page);
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    int64_t calls = 0;
    for (const auto& [labels, count] : metrics->Of("phasor_calls_total")) {
      calls += static_cast<int64_t>(count);
    }
    return calls;
  }
  std::string Unix() const { return "--server unix:" + dir_.path() + "/phasor.sock"; }

  const testing::TempDir dir_;
  std::unique_ptr<Server> server_;
};

TEST_F(BenchCommandTest, EveryModeAnswersWithoutErrors) {
  const std::string rope = " --preset llama-2 --tokens 4 --dtype bfloat16 --duration 0.2 ";
  for (const std::string& how :
       {Tcp(), Tcp() + " --mode stream --concurrency 3", Tcp() + " --mode chunks",
        Unix() + " --concurrency 4 --channels 2", std::string("--mode stream")}) {
    const auto json = BenchJson(how + rope);
    ASSERT_TRUE(json.is_object());
    EXPECT_EQ(json["shape"], nlohmann::json({4, 32, 128})) << how;
    EXPECT_GT(json["phasor"]["calls"], 0) << how;
    EXPECT_GT(json["phasor"]["p50_ms"], 0) << how;
    EXPECT_TRUE(json["phasor"]["errors"].empty()) << how << json["phasor"]["errors"];
  }
}

TEST_F(BenchCommandTest, TheBareWireRunsBesideIt) {
  for (const std::string& server : {Tcp(), Unix()}) {
    const auto json = BenchJson(server + " --preset transformer --dim 16 --duration 0.2 --vs-echo");
    ASSERT_TRUE(json.is_object());
    EXPECT_GT(json["echo"]["calls"], 0);
    EXPECT_TRUE(json["echo"]["errors"].empty());
    EXPECT_GT(json["ratio"], 0);
  }
}

TEST_F(BenchCommandTest, TensorsMayLieInSharedMemory) {
  for (const std::string spec : {"--preset llama-2", "--preset transformer --dim 16"}) {
    const auto json = BenchJson(Unix() + " --tokens 4 --shared --duration 0.2 " + spec);
    ASSERT_TRUE(json.is_object());
    EXPECT_EQ(json["shared"], true);
    EXPECT_GT(json["phasor"]["calls"], 0);
    EXPECT_TRUE(json["phasor"]["errors"].empty()) << json["phasor"]["errors"];
  }
  EXPECT_THAT(Bench("--preset llama-2 --shared").text,
              StartsWith("phasor: FAILED_PRECONDITION: --shared: not shared"));
  EXPECT_THAT(Bench(Unix() + " --preset llama-2 --shared --mode stream").text,
              StartsWith("phasor: INVALID_ARGUMENT: --shared: only plain calls"));
}

TEST_F(BenchCommandTest, WhatNoMessageHoldsHasNoBareWire) {
  EXPECT_THAT(
      Bench(Tcp() + " --preset llama-2 --tokens 1000000 --mode chunks --vs-echo").text,
      StartsWith("phasor: INVALID_ARGUMENT: --vs-echo: 16384000000 bytes of a tensor; must be"));
}

TEST_F(BenchCommandTest, ARateIsKept) {
  const auto json =
      BenchJson(Tcp() + " --preset transformer --dim 16 --rate 100 --duration 0.5 --concurrency 4");
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["phasor"]["calls"].get<int>() + json["phasor"]["unsent"].get<int>(), 50);
}

TEST_F(BenchCommandTest, RefusalsAreCounted) {
  ServerOptions options = testing::TestOptions();
  options.max_inflight_bytes = 3 << 20;
  options.max_message_bytes = 2 << 20;
  const std::unique_ptr<Server> small = testing::StartServer(options);
  const auto json = BenchJson("--server " + small->listeners()[0] +
                              " --preset llama-2 --tokens 64 --duration 0.5 --concurrency 16");
  ASSERT_TRUE(json.is_object());
  EXPECT_GT(json["phasor"]["calls"], 0);
  ASSERT_FALSE(json["phasor"]["errors"].empty());
  EXPECT_EQ(json["phasor"]["errors"][0]["code"], "UNAVAILABLE");
}

// The server has refused a call at least as often as it was attempted before it counts as failed.
TEST_F(BenchCommandTest, RefusedCallsAreRepeatedIfAsked) {
  ServerOptions options = testing::TestOptions();
  options.max_inflight_bytes = 3 << 20;
  options.max_message_bytes = 2 << 20;
  options.metrics_listen = {"127.0.0.1:0"};
  const std::unique_ptr<Server> small = testing::StartServer(options);
  const auto json =
      BenchJson("--server " + small->listeners()[0] +
                " --preset llama-2 --tokens 64 --duration 0.5 --concurrency 16 --attempts 4");
  ASSERT_TRUE(json.is_object());
  int64_t failed = 0;
  for (const auto& error : json["phasor"]["errors"]) failed += error["count"].get<int64_t>();
  const auto page =
      FetchMetrics(*ParseMetricsUrl(small->metrics_listeners()[0]), absl::Seconds(30));
  ASSERT_TRUE(page.ok()) << page.status();
  const std::string line = "ApplyRoPE\",grpc_status=\"UNAVAILABLE\"} ";
  const size_t at = page->find(line);
  ASSERT_NE(at, std::string::npos) << *page;
  EXPECT_GE(std::stoll(page->substr(at + line.size())), std::max<int64_t>(1, 4 * failed));
}

// Ctrl-C reaches all of a job: the program, and the bare server that it started.
TEST_F(BenchCommandTest, AnInterruptEndsTheLoadAndShowsWhatThereWas) {
  testing::Subprocess bench({"/usr/bin/setsid", PHASOR_BINARY, "bench", "--server",
                             server_->listeners()[0], "--preset", "transformer", "--dim", "16",
                             "--duration", "600", "--rate", "10", "--vs-echo"});
  // 1 call checks the answer, 2 warm up and 10 are the first turn: with 16 the bare server has had
  // its turn.
  EXPECT_TRUE(testing::Eventually([&] { return CallsTaken() >= 16; }, absl::Minutes(2)));
  kill(-bench.pid(), SIGINT);
  const std::string text = bench.ReadAll();
  EXPECT_EQ(bench.Wait(), 0);
  EXPECT_THAT(text, HasSubstr("Encode of [1,16] FLOAT32, UNARY, 127.0.0.1:"));
  EXPECT_THAT(text, HasSubstr("of the calls of the bare wire"));
  EXPECT_THAT(text, Not(HasSubstr("UNAVAILABLE")));
}

TEST(BenchCommandErrorsTest, WhatIsWrongIsSaid) {
  EXPECT_THAT(Bench("--preset transformer --dim 4 --vs-echo").text,
              StartsWith("phasor: INVALID_ARGUMENT: --vs-echo: there is no wire"));
  EXPECT_THAT(Bench("--preset nobody").text, StartsWith("phasor: NOT_FOUND: --preset"));
  EXPECT_EQ(Bench("--preset transformer --dim 4 --concurrency 0").status, 2);
  EXPECT_THAT(Bench("--preset llama-2 --tokens 1000000000000 --heads 1000000").text,
              StartsWith("phasor: INVALID_ARGUMENT: --tokens"));
  const testing::ShellOutcome nobody =
      Bench("--preset transformer --dim 4 --server unix:/nonexistent");
  EXPECT_EQ(nobody.status, 1);
  EXPECT_THAT(nobody.text, StartsWith("phasor: UNAVAILABLE"));
}

}  // namespace
}  // namespace phasor::cli
