// SPDX-License-Identifier: Apache-2.0
// Tests SIGHUP: what a running phasor-server takes over from its file, without any caller noticing.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "tests/support/eventually.h"
#include "tests/support/requests.h"
#include "tests/support/running_server.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ReloadStub = v1::PositionEmbeddingService::Stub;

constexpr char kRowsEncoder[] =
    "encoders { name: \"rows\" spec { preset: \"transformer\" dim: 16 } }\n";

class ReloadedProcessTest : public ::testing::Test {
 protected:
  // As a tool that replaces a configuration does it: the file is never seen half written.
  void WriteConfig(const std::string& text) {
    directory_.Write("next", text);
    std::filesystem::rename(directory_.path() + "/next", path());
  }
  std::string path() const { return directory_.path() + "/phasor.txtpb"; }

  static std::unique_ptr<ReloadStub> NewStub(const testing::ServerProcess& server) {
    return v1::PositionEmbeddingService::NewStub(testing::NewChannel(server.address()));
  }

  static grpc::Status Encode(ReloadStub& stub, const std::string& encoder,
                             v1::EncodeResponse* response) {
    v1::EncodeRequest request = testing::EncodeRequestOf(3);
    request.mutable_item()->mutable_spec()->Clear();
    request.mutable_item()->mutable_spec()->set_encoder(encoder);
    testing::TestContext context;
    return stub.Encode(&context, request, response);
  }

  testing::TempDir directory_;
};

TEST_F(ReloadedProcessTest, EncoderAppearsChangesAndGoes) {
  WriteConfig("");
  testing::ServerProcess server({"--config", path()});
  const auto stub = NewStub(server);
  v1::EncodeResponse response;
  EXPECT_EQ(Encode(*stub, "rows", &response).error_code(), grpc::StatusCode::NOT_FOUND);
  const std::pair<int, std::string> steps[] = {{16, "added"}, {24, "changed"}};
  for (const auto& [dim, what] : steps) {
    WriteConfig("encoders { name: \"rows\" spec { preset: \"transformer\" dim: " +
                std::to_string(dim) + " } }");
    server.Signal(SIGHUP);
    const json line = server.ReadEvent();
    EXPECT_EQ(line["event"], "reloaded");
    EXPECT_EQ(line["changed"], json::array({"encoders.rows: " + what}));
    const grpc::Status status = Encode(*stub, "rows", &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.result().output().shape(1), dim);
  }
  WriteConfig("");
  server.Signal(SIGHUP);
  EXPECT_EQ(server.ReadEvent()["changed"], json::array({"encoders.rows: removed"}));
  EXPECT_EQ(Encode(*stub, "rows", &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ReloadedProcessTest, BadFileIsRefusedAndTheOldConfigurationStays) {
  WriteConfig(kRowsEncoder);
  testing::ServerProcess server({"--config", path()});
  const auto stub = NewStub(server);
  const std::string bad[] = {
      "max_batch_items: 3\nmax_conections: 5\n",       // an unknown field after a good one
      "max_batch_items: 3\nmax_connections: 0\n",      // out of range
      "max_batch_items: 3\nencoders { name: \"a\" }",  // an encoder without a spec
  };
  for (const std::string& text : bad) {
    WriteConfig(text);
    server.Signal(SIGHUP);
    const json line = server.ReadEvent();
    EXPECT_EQ(line["event"], "reload refused");
    EXPECT_EQ(line["level"], "error");
    EXPECT_THAT(line["error"].get<std::string>(), HasSubstr(path() + ":2: "));
    v1::EncodeResponse response;
    EXPECT_TRUE(Encode(*stub, "rows", &response).ok());
    grpc::ClientContext context;
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(stub->GetServerInfo(&context, {}, &info).ok());
    EXPECT_EQ(info.limits().max_batch_items(), 4096);
  }
  std::filesystem::remove(path());
  server.Signal(SIGHUP);
  EXPECT_THAT(server.ReadEvent()["error"].get<std::string>(), HasSubstr("cannot be read"));
}

TEST_F(ReloadedProcessTest, MoreConnectionsThanThereAreDescriptorsForAreLogged) {
  WriteConfig("max_connections: 400\n");
  testing::ServerProcess server({"--config", path()});
  const rlimit limit = {1000, 1000};
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_NOFILE, &limit, nullptr), 0);
  WriteConfig("max_connections: 600\n");
  server.Signal(SIGHUP);
  EXPECT_EQ(server.ReadEvent()["changed"], json::array({"max-connections: 400 -> 600"}));
  server.Signal(SIGTERM);  // of which there is a line in any case
  const json line = server.ReadEvent();
  EXPECT_EQ(line["event"], "few file descriptors");
  EXPECT_EQ(line["limit"], 1000);
  EXPECT_EQ(line["wanted"], 2 * 600 + 64);
}

TEST_F(ReloadedProcessTest, SaysWhatNeedsARestartAndThatFlagsStillWin) {
  WriteConfig("");
  testing::ServerProcess server({"--config", path(), "--max-connections=50"});
  WriteConfig("threads: 3\nmax_batch_items: 5\nmax_connections: 60\nlog_level: \"debug\"\n");
  server.Signal(SIGHUP);
  EXPECT_EQ(server.ReadEvent()["changed"],
            json::array({"max-batch-items: 4096 -> 5", "log-level: info -> debug"}));
  const json line = server.ReadEvent();
  EXPECT_EQ(line["event"], "restart needed");
  EXPECT_EQ(line["options"], json::array({"threads: 0 -> 3"}));
}

TEST_F(ReloadedProcessTest, SigtermStillDrainsAfterAReload) {
  WriteConfig("drain_delay: \"1h\"");
  testing::ServerProcess server({"--config", path()});
  WriteConfig("");
  server.Signal(SIGHUP);
  EXPECT_EQ(server.ReadEvent()["changed"], json::array({"drain-delay: 1h -> 0"}));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.ReadEvent()["event"], "draining");
  EXPECT_EQ(server.ReadEvent()["drained"], true);
  EXPECT_EQ(server.Wait(), 0);
}

// To open a FIFO that nobody writes to waits for ever, and SIGTERM would wait behind it.
TEST_F(ReloadedProcessTest, SigtermEndsItAfterTheFileBecameAFifo) {
  WriteConfig("");
  testing::ServerProcess server({"--config", path()});
  std::filesystem::remove(path());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  server.Signal(SIGHUP);
  server.Signal(SIGTERM);
  ASSERT_TRUE(testing::Eventually([&server] { return server.HasEnded(); }));
  const json line = server.ReadEvent();
  EXPECT_EQ(line["event"], "reload refused");
  EXPECT_EQ(line["error"], "config: '" + path() + "' is not a regular file; give the path of one");
  EXPECT_EQ(server.Wait(), 0);
}

TEST_F(ReloadedProcessTest, NoCallFailsWhileItReloads) {
  constexpr int kClients = 4, kReloads = 40;
  const auto text = [](int i) {
    return std::string(kRowsEncoder) +
           "encoders { name: \"other\" spec { preset: \"transformer\" dim: " +
           std::to_string(2 * (i % 5) + 2) + " } }\nmax_inflight_bytes: \"" +
           std::to_string(64 + i) + "MiB\"\nmax_batch_items: " + std::to_string(i + 1) +
           "\nmax_connections: " + std::to_string(100 + i);
  };
  WriteConfig(text(0));
  testing::ServerProcess server({"--config", path()});
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0, failures = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < kClients; ++i) {
    callers.emplace_back([&, i] {
      const auto stub = NewStub(server);
      while (!stop) {
        v1::EncodeResponse response;
        const grpc::Status status = Encode(*stub, i % 2 == 0 ? "rows" : "other", &response);
        const bool whole =
            status.ok() && (i % 2 != 0 || response.result().output().shape(1) == 16) &&
            response.raw(0).size() == static_cast<size_t>(12 * response.result().output().shape(1));
        failures += !whole;
        ++calls;
      }
    });
  }
  for (int i = 1; i <= kReloads; ++i) {
    const int before = calls;
    WriteConfig(text(i));
    server.Signal(SIGHUP);
    const json line = server.ReadEvent();
    EXPECT_EQ(line["event"], "reloaded") << line;
    EXPECT_EQ(line["changed"].size(), 4u) << line;
    while (calls < before + kClients) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures, 0) << "of " << calls;
  std::cout << calls << " calls during " << kReloads << " reloads\n";
}

}  // namespace
}  // namespace phasor
