// SPDX-License-Identifier: Apache-2.0
// Tests tables over gRPC: uploads in many messages, every refusal, paging, and calls that use
// tables.
#include "server/api/table_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "kernels/base/sha256.h"
#include "server/grpc/callback_threads.h"
#include "tests/server/api/test_server.h"
#include "tests/support/requests.h"
#include "tests/support/temp_dir.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::TempDir;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kBytes(32, 'x');

v1::Table Announce(const std::string& name, const std::string& bytes = kBytes) {
  v1::Table table;
  table.set_name(name);
  testing::SetShape(table.mutable_tensor(), v1::DTYPE_FLOAT32, {4, 2});
  table.set_sha256(Sha256Hex(bytes));
  return table;
}

class TableServiceTest : public ::testing::Test {
 protected:
  TableServiceTest()
      : server_(TestServer::SmallEngine(), {dir_.path(), 1000, 4000}),
        stub_(v1::TableService::NewStub(server_.channel())) {}

  // Sends the announcement and the bytes in messages of `piece`.
  grpc::Status Upload(const v1::Table& table, const std::string& bytes, size_t piece = 8) {
    grpc::ClientContext context;
    const auto writer = stub_->CreateTable(&context, &created_);
    v1::CreateTableRequest request;
    *request.mutable_table() = table;
    writer->Write(request);
    for (size_t begin = 0; begin < bytes.size(); begin += piece) {
      request.Clear();
      request.add_raw(bytes.substr(begin, piece));
      writer->Write(request);
    }
    writer->WritesDone();
    return writer->Finish();
  }

  TempDir dir_;
  TestServer server_;
  std::unique_ptr<v1::TableService::Stub> stub_;
  v1::CreateTableResponse created_;
};

TEST_F(TableServiceTest, AnUploadIsDescribedAndReadByEncode) {
  const grpc::Status status = Upload(Announce("pos"), kBytes);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(created_.table().name(), "pos");
  grpc::ClientContext context;
  v1::GetTableRequest get;
  get.set_name("pos");
  v1::GetTableResponse got;
  ASSERT_TRUE(stub_->GetTable(&context, get, &got).ok());
  EXPECT_THAT(got.table().tensor().shape(), ElementsAre(4, 2));
  EXPECT_EQ(got.table().sha256(), Sha256Hex(kBytes));

  v1::EncodeRequest encode;
  encode.mutable_item()->set_table("pos");
  encode.mutable_item()->mutable_positions()->mutable_range()->mutable_integer()->set_count(4);
  encode.mutable_item()->set_output_dtype(v1::DTYPE_FLOAT32);
  EXPECT_TRUE(server_.Call("Encode", encode.SerializeAsString()).ok());
  encode.mutable_item()->mutable_positions()->mutable_range()->mutable_integer()->set_count(5);
  const grpc::Status beyond = server_.Call("Encode", encode.SerializeAsString());
  EXPECT_EQ(beyond.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(beyond.error_message(), HasSubstr("position 4 of token 4, table 'pos' ends at 3"));
  encode.mutable_item()->set_out_of_range(v1::OUT_OF_RANGE_CLIP);
  EXPECT_TRUE(server_.Call("Encode", encode.SerializeAsString()).ok());
}

TEST_F(TableServiceTest, WrongUploadsHaveCodesOfTheirOwn) {
  EXPECT_EQ(Upload(Announce("t", "other"), kBytes).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(Upload(Announce("t"), kBytes.substr(1)).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload(Announce("t"), kBytes + "x").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload(Announce("../t"), kBytes).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::Table large = Announce("t");
  large.mutable_tensor()->set_shape(0, 1000);
  EXPECT_EQ(Upload(large, kBytes).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(Upload({}, kBytes).error_message(), HasSubstr("table.tensor.dtype: not set"));
  EXPECT_TRUE(dir_.Files().empty());
}

TEST_F(TableServiceTest, TheTableComesInTheFirstMessageAndOnlyThere) {
  grpc::ClientContext none, late, twice, empty;
  auto writer = stub_->CreateTable(&none, &created_);
  writer->WritesDone();
  EXPECT_THAT(writer->Finish().error_message(),
              HasSubstr("table: no message received; send the table first"));
  v1::CreateTableRequest request;
  request.add_raw("x");
  writer = stub_->CreateTable(&late, &created_);
  writer->Write(request);
  writer->WritesDone();
  EXPECT_THAT(writer->Finish().error_message(), HasSubstr("table: not set; must be in the first"));
  *request.mutable_table() = Announce("t");
  writer = stub_->CreateTable(&twice, &created_);
  writer->Write(request);
  writer->Write(request);
  writer->WritesDone();
  EXPECT_THAT(writer->Finish().error_message(), HasSubstr("table: set again"));
  // Would keep a place among uploads for ever.
  request.clear_raw();
  writer = stub_->CreateTable(&empty, &created_);
  writer->Write(request);
  request.clear_table();
  writer->Write(request);
  writer->WritesDone();
  EXPECT_THAT(writer->Finish().error_message(), HasSubstr("raw: no bytes; every message after"));
}

TEST_F(TableServiceTest, ACancelledUploadKeepsTheOldTable) {
  ASSERT_TRUE(Upload(Announce("t"), kBytes).ok());
  grpc::ClientContext context;
  v1::CreateTableRequest request;
  *request.mutable_table() = Announce("t", std::string(32, 'y'));
  request.add_raw(std::string(31, 'y'));
  const auto writer = stub_->CreateTable(&context, &created_);
  writer->Write(request);
  context.TryCancel();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ((*server_.store().Find("t", ""))->sha256, Sha256Hex(kBytes));
}

TEST_F(TableServiceTest, ListingGoesPageByPage) {
  for (const char* name : {"c", "a", "b"}) ASSERT_TRUE(Upload(Announce(name), kBytes).ok());
  v1::ListTablesRequest request;
  request.set_page_size(2);
  v1::ListTablesResponse page;
  grpc::ClientContext first, second, bad_size, bad_token;
  ASSERT_TRUE(stub_->ListTables(&first, request, &page).ok());
  ASSERT_EQ(page.tables_size(), 2);
  EXPECT_EQ(page.tables(1).name(), "b");
  request.set_page_token(page.next_page_token());
  ASSERT_TRUE(stub_->ListTables(&second, request, &page).ok());
  ASSERT_EQ(page.tables_size(), 1);
  EXPECT_EQ(page.tables(0).name(), "c");
  EXPECT_TRUE(page.next_page_token().empty());
  EXPECT_FALSE(page.storage().directory().empty());
  request.set_page_token("../");
  EXPECT_THAT(stub_->ListTables(&bad_token, request, &page).error_message(),
              HasSubstr("page_token: "));
  request.set_page_size(1001);
  EXPECT_THAT(stub_->ListTables(&bad_size, request, &page).error_message(),
              HasSubstr("page_size: 1001"));
}

TEST_F(TableServiceTest, ADeletedTableIsNotFound) {
  ASSERT_TRUE(Upload(Announce("t"), kBytes).ok());
  v1::DeleteTableRequest request;
  request.set_name("t");
  v1::DeleteTableResponse response;
  grpc::ClientContext first, second;
  EXPECT_TRUE(stub_->DeleteTable(&first, request, &response).ok());
  EXPECT_EQ(stub_->DeleteTable(&second, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

// Idle uploads take every place that one caller may have, and give them back.
TEST(IdleUploadTest, EndsAndFreesItsPlace) {
  const TempDir dir;
  TestServer server(TestServer::SmallEngine(), {dir.path(), 1000, 4000}, absl::Seconds(1));
  const auto stub = v1::TableService::NewStub(server.channel());
  v1::CreateTableRequest request;
  *request.mutable_table() = Announce("t");
  struct Idle {
    grpc::ClientContext context;
    v1::CreateTableResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::CreateTableRequest>> writer;
  };
  std::vector<std::unique_ptr<Idle>> all;
  for (int i = 0; i < tables::UploadPlaces::kOfOne; ++i) {
    Idle& idle = *all.emplace_back(std::make_unique<Idle>());
    idle.writer = stub->CreateTable(&idle.context, &idle.response);
    ASSERT_TRUE(idle.writer->Write(request));
  }
  for (const auto& idle : all) {
    const grpc::Status status = idle->writer->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_THAT(status.error_message(), HasSubstr("table: nothing received for 1s"));
  }
  grpc::ClientContext context;
  v1::CreateTableResponse response;
  const auto writer = stub->CreateTable(&context, &response);
  request.add_raw(kBytes);
  writer->Write(request);
  writer->WritesDone();
  EXPECT_TRUE(writer->Finish().ok());
}

// Each byte comes before the upload is idle, but the table would take 4 seconds.
TEST(SlowUploadTest, EndsBeforeAllHasCome) {
  const TempDir dir;
  TestServer server(TestServer::SmallEngine(), {dir.path(), 4000, 4000}, absl::Milliseconds(200));
  const auto stub = v1::TableService::NewStub(server.channel());
  const std::string bytes(4000, 'x');
  v1::CreateTableRequest request;
  *request.mutable_table() = Announce("t", bytes);
  request.mutable_table()->mutable_tensor()->set_shape(0, 500);
  grpc::ClientContext context;
  v1::CreateTableResponse response;
  const auto writer = stub->CreateTable(&context, &response);
  bool open = writer->Write(request);
  request.clear_table();
  request.add_raw("x");
  for (size_t i = 0; open && i < bytes.size(); ++i) {
    absl::SleepFor(absl::Milliseconds(1));
    open = writer->Write(request);
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
}

// Another server has uploaded a table, and this one reads its file for as long as the test wants.
class UnreadTableTest : public ::testing::Test {
 protected:
  UnreadTableTest() {
    const auto other = *tables::TableStore::Open({dir_.path(), 1000, 4000});
    auto upload = *other->Begin("t", {Dtype::kFloat32, {4, 2}, {}}, Sha256Hex(kBytes));
    EXPECT_TRUE(upload->Append({reinterpret_cast<const std::byte*>(kBytes.data()), 32}).ok());
    EXPECT_TRUE(other->Commit(std::move(upload)).ok());
    *encode_.mutable_item() = testing::EncodeOf(2);
    encode_.mutable_item()->clear_spec();
    encode_.mutable_item()->set_table("t");
  }

  // The outcome of a call that needs the table. Others are served meanwhile.
  grpc::Status WhileRead(const std::function<grpc::Status(grpc::ClientContext*)>& call) {
    const CallbackThreads one(1, [] { return false; });  // gRPC has no other thread to answer on
    auto status = std::async(std::launch::async, [&] {
      grpc::ClientContext context;
      return call(&context);
    });
    reads_.WaitForNotification();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    v1::GetServerInfoResponse info;
    EXPECT_TRUE(stub_->GetServerInfo(&context, {}, &info).ok());
    may_read_.Notify();
    return status.get();
  }

  TempDir dir_;
  absl::Notification reads_, may_read_;
  TestServer server_{TestServer::SmallEngine(),
                     {.directory = dir_.path(), .step_hook = [this](const std::string& step) {
                        if (step == "read" && !reads_.HasBeenNotified()) reads_.Notify();
                        if (step == "read") may_read_.WaitForNotification();
                        return absl::OkStatus();
                      }}};
  const std::unique_ptr<v1::PositionEmbeddingService::Stub> stub_ =
      v1::PositionEmbeddingService::NewStub(server_.channel());
  v1::EncodeRequest encode_;
};

TEST_F(UnreadTableTest, ACallWaitsForItAlone) {
  v1::EncodeResponse response;
  const grpc::Status status = WhileRead(
      [&](grpc::ClientContext* context) { return stub_->Encode(context, encode_, &response); });
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.raw(0).size(), 16u);
}

TEST_F(UnreadTableTest, ABatchWaitsForItAlone) {
  v1::BatchEncodeRequest request;
  *request.add_items() = testing::EncodeOf(1);
  *request.add_items() = encode_.item();
  v1::BatchEncodeResponse response;
  EXPECT_TRUE(WhileRead([&](grpc::ClientContext* context) {
                return stub_->BatchEncode(context, request, &response);
              }).ok());
  ASSERT_EQ(response.results_size(), 2);
  EXPECT_EQ(response.results(1).status().code(), 0) << response.results(1).status().message();
}

TEST_F(UnreadTableTest, AStreamWaitsForItAlone) {
  std::vector<v1::StreamEncodeResponse> answers(3);
  const grpc::Status status = WhileRead([&](grpc::ClientContext* context) {
    const auto stream = stub_->StreamEncode(context);
    v1::StreamEncodeRequest request;
    for (int id = 0; id < 3; ++id) {
      request.set_id(id);
      *request.mutable_item() = id == 1 ? testing::EncodeOf(1) : encode_.item();
      stream->Write(request);
    }
    stream->WritesDone();
    for (auto& answer : answers) EXPECT_TRUE(stream->Read(&answer));
    return stream->Finish();
  });
  EXPECT_TRUE(status.ok()) << status.error_message();
  for (const auto& answer : answers) EXPECT_EQ(answer.result().status().code(), 0);
}

TEST_F(UnreadTableTest, ADescriptionWaitsForItAlone) {
  const auto tables = v1::TableService::NewStub(server_.channel());
  v1::GetTableRequest request;
  request.set_name("t");
  v1::GetTableResponse response;
  EXPECT_TRUE(WhileRead([&](grpc::ClientContext* context) {
                return tables->GetTable(context, request, &response);
              }).ok());
  EXPECT_EQ(response.table().sha256(), Sha256Hex(kBytes));
}

TEST(TableServiceWithoutDirectoryTest, UploadsSayWhatTheServerLacks) {
  TestServer server;
  const auto stub = v1::TableService::NewStub(server.channel());
  grpc::ClientContext context;
  v1::CreateTableResponse response;
  v1::CreateTableRequest request;
  *request.mutable_table() = Announce("t");
  const auto writer = stub->CreateTable(&context, &response);
  writer->Write(request);
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("must be started with --tables-dir"));
}

TEST(AttentionBiasTest, AnswersScoresOfTheAskedShapeAndNamesWrongFields) {
  TestServer server;
  v1::AttentionBiasRequest request;
  v1::AttentionBiasItem& item = *request.mutable_item();
  item.set_preset("alibi");
  item.set_heads(4);
  item.mutable_query_positions()->mutable_range()->mutable_integer()->set_count(3);
  item.mutable_key_positions()->mutable_range()->mutable_integer()->set_count(5);
  item.set_output_dtype(v1::DTYPE_FLOAT32);
  PendingCall call;
  server.Start("AttentionBias", request.SerializeAsString(), &call);
  call.done.WaitForNotification();
  ASSERT_TRUE(call.status.ok()) << call.status.error_message();
  grpc::Slice slice;
  ASSERT_TRUE(call.response.DumpToSingleSlice(&slice).ok());
  v1::AttentionBiasResponse response;
  ASSERT_TRUE(response.ParseFromArray(slice.begin(), static_cast<int>(slice.size())));
  EXPECT_THAT(response.output().shape(), ElementsAre(4, 3, 5));
  ASSERT_EQ(response.raw_size(), 1);
  EXPECT_EQ(response.raw(0).size(), 4u * 4 * 3 * 5);
  EXPECT_EQ(response.info().spec_fingerprint().size(), 32u);

  item.set_table("t");
  EXPECT_THAT(server.Call("AttentionBias", request.SerializeAsString()).error_message(),
              HasSubstr("item.table: set; must be only for"));
  item.set_preset("t5");
  const grpc::Status unknown = server.Call("AttentionBias", request.SerializeAsString());
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  item.clear_table();
  testing::SetShape(item.mutable_table_values(), v1::DTYPE_FLOAT32, {32, 4});
  request.add_raw(std::string(32 * 4 * 4, '\0'));
  EXPECT_TRUE(server.Call("AttentionBias", request.SerializeAsString()).ok());
  request.set_raw(0, "x");
  EXPECT_THAT(server.Call("AttentionBias", request.SerializeAsString()).error_message(),
              HasSubstr("item.table_values: raw[0] has 1 bytes; must have 512"));
}

TEST(AttentionBiasTest, AHugeAnswerIsRefusedBeforeItIsComputed) {
  TestServer server;
  v1::AttentionBiasRequest request;
  v1::AttentionBiasItem& item = *request.mutable_item();
  item.set_preset("alibi");
  item.set_heads(65536);
  item.mutable_query_positions()->mutable_range()->mutable_integer()->set_count(1 << 20);
  item.mutable_key_positions()->mutable_range()->mutable_integer()->set_count(1 << 20);
  item.set_output_dtype(v1::DTYPE_FLOAT32);
  const grpc::Status status = server.Call("AttentionBias", request.SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(server.backend().runs(), 0);
}

}  // namespace
}  // namespace phasor::rpc
