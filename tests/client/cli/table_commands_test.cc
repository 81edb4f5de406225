// SPDX-License-Identifier: Apache-2.0
// Tests the subcommands `bias` and `tables` against a server in this process.
#include <string>
#include <vector>

#include "client/cli/npy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/sha256.h"
#include "nlohmann/json.hpp"
#include "phasor/v1/position_embedding_service.pb.h"
#include "phasor/v1/table_service.pb.h"
#include "server/server.h"
#include "tests/client/grpc/fake_server.h"
#include "tests/support/requests.h"
#include "tests/support/run_command.h"
#include "tests/support/temp_dir.h"

namespace phasor::cli {
namespace {

using ::testing::HasSubstr;

TEST(TableCommandsTest, BiasPrintsAlibi) {
  const Outcome run = RunCommand({"bias", "--preset", "alibi", "--heads", "2", "--query-positions",
                                  "5", "--key-range", "3:6"});
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.out, HasSubstr("-0.125000  -0.062500  -0.000000"));
}

TEST(TableCommandsTest, BiasGivesBucketsAsJson) {
  const Outcome run =
      RunCommand({"bias", "--preset", "t5-decoder", "--query-positions", "200", "--key-positions",
                  "0,100,199,300", "--dtype", "int32", "--json"});
  ASSERT_TRUE(run.status.ok()) << run.status;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["tensor"]["shape"], nlohmann::json({1, 1, 4}));
  EXPECT_EQ(json["tensor"]["values"][0][0], nlohmann::json({31, 30, 1, 0}));
}

TEST(TableCommandsTest, BiasReadsATableFromAFileAndWritesOne) {
  const testing::TempDir dir;
  const std::vector<float> table = {-2, -1, 0, 1, 2};
  ASSERT_TRUE(WriteNpy(dir.path() + "/t.npy", View(table, {5, 1})).ok());
  const Outcome run = RunCommand({"bias", "--family", "clipped", "--max-distance", "2",
                                  "--query-range", "0:1", "--key-range", "-3:4", "--table-file",
                                  dir.path() + "/t.npy", "--output", dir.path() + "/out.npy"});
  ASSERT_TRUE(run.status.ok()) << run.status;
  const auto out = ReadNpy(dir.path() + "/out.npy", false);
  ASSERT_TRUE(out.ok()) << out.status();
  const auto* values = reinterpret_cast<const float*>(out->bytes.data());
  EXPECT_EQ(std::vector<float>(values, values + 7), (std::vector<float>{-2, -2, -1, 0, 1, 2, 2}));
}

TEST(TableCommandsTest, TablesNeedAServer) {
  EXPECT_THAT(std::string(RunCommand({"tables", "list"}).status.message()),
              HasSubstr("--server: not set"));
}

TEST(TableCommandsTest, ATableIsUploadedListedReadAndDeleted) {
  const testing::TempDir dir, store;
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.log_level = "off";
  options.tables_dir = store.path();
  const auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->listeners()[0];
  std::vector<float> table(600000);  // several messages
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  ASSERT_TRUE(WriteNpy(dir.path() + "/t.npy", View(table, {600, 1000})).ok());

  const Outcome upload =
      RunCommand({"tables", "upload", "pos", dir.path() + "/t.npy", "--server", address});
  ASSERT_TRUE(upload.status.ok()) << upload.status;
  EXPECT_THAT(upload.out, HasSubstr("pos   FLOAT32  [600, 1000]"));
  const Outcome list = RunCommand({"tables", "list", "--json", "--server", address});
  EXPECT_EQ(nlohmann::json::parse(list.out)[0]["name"], "pos");
  EXPECT_THAT(RunCommand({"tables", "list", "--server", address}).out,
              HasSubstr("kept in " + store.path()));
  const Outcome get = RunCommand(
      {"tables", "get", "pos", "--output", dir.path() + "/back.npy", "--server", address});
  ASSERT_TRUE(get.status.ok()) << get.status;
  EXPECT_EQ(dir.Read("back.npy"), dir.Read("t.npy"));
  const Outcome beyond =
      RunCommand({"encode", "--table", "pos", "--positions", "600", "--server", address});
  EXPECT_EQ(beyond.status.code(), absl::StatusCode::kOutOfRange);
  const Outcome clipped =
      RunCommand({"encode", "--table", "pos", "--clip", "--positions", "600", "--server", address});
  EXPECT_THAT(clipped.out, HasSubstr("599000.000000"));
  EXPECT_TRUE(RunCommand({"tables", "delete", "pos", "--server", address}).status.ok());
  EXPECT_EQ(RunCommand({"tables", "get", "pos", "--server", address}).status.code(),
            absl::StatusCode::kNotFound);
}

// The server describes one table, and has another when it is asked for the rows.
TEST(TableCommandsTest, ATableThatIsReplacedWhileItIsReadIsNotWritten) {
  const testing::TempDir dir;
  const std::string described(16, 'o'), sent(16, 'n');
  const client_internal::FakeServer server([&](const client_internal::FakeServer::Request& asked) {
    if (asked.method.ends_with("GetTable")) {
      v1::GetTableResponse response;
      response.mutable_table()->set_name("t");
      response.mutable_table()->set_sha256(Sha256Hex(described));
      testing::SetShape(response.mutable_table()->mutable_tensor(), v1::DTYPE_FLOAT32, {2, 2});
      return client_internal::FakeServer::Reply{.bytes = response.SerializeAsString()};
    }
    v1::EncodeResponse response;
    testing::SetShape(response.mutable_result()->mutable_output(), v1::DTYPE_FLOAT32, {2, 2});
    response.add_raw(sent);
    return client_internal::FakeServer::Reply{.bytes = response.SerializeAsString()};
  });
  const Outcome get = RunCommand(
      {"tables", "get", "t", "--output", dir.path() + "/t.npy", "--server", server.target()});
  EXPECT_EQ(get.status.code(), absl::StatusCode::kAborted) << get.status;
  EXPECT_TRUE(dir.Files().empty());
}

}  // namespace
}  // namespace phasor::cli
