// SPDX-License-Identifier: Apache-2.0
// Tests an upload as a server receives it. table_commands_test uploads to the real server.
#include "client/grpc/upload.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "kernels/base/sha256.h"
#include "phasor/v1/table_service.grpc.pb.h"
#include "tests/support/status_matchers.h"

namespace phasor::client_internal {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

// Keeps what it receives, and answers `status`.
class Receiver final : public v1::TableService::Service {
 public:
  grpc::Status CreateTable(grpc::ServerContext* context,
                           grpc::ServerReader<v1::CreateTableRequest>* reader,
                           v1::CreateTableResponse* response) override {
    for (const auto& [key, value] : context->client_metadata()) {
      if (key == "traceparent") traceparent = std::string(value.data(), value.size());
    }
    v1::CreateTableRequest request;
    while (reader->Read(&request)) {
      if (request.has_table()) table = request.table();
      for (const std::string& raw : request.raw()) bytes += raw;
      largest = std::max(largest, request.ByteSizeLong());
      if (!status.ok()) return status;
    }
    *response->mutable_table() = table;
    return grpc::Status::OK;
  }
  v1::Table table;
  std::string bytes;
  std::string traceparent;
  size_t largest = 0;
  grpc::Status status;
};

class UploadTest : public ::testing::Test {
 protected:
  UploadTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(&receiver_);
    server_ = builder.BuildAndStart();
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i);
  }
  absl::StatusOr<TableInfo> Upload(const TensorView& values, const CallContext& context = {}) {
    return UploadTable(server_->InProcessChannel({}), "t", values, context);
  }

  Receiver receiver_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<float> values_ = std::vector<float>(300 * 1000);
};

TEST_F(UploadTest, BytesGoInPiecesWithTheirChecksum) {
  const auto table = Upload(View(values_, {300, 1000}));
  ASSERT_TRUE(table.ok()) << table.status();
  const std::string bytes(reinterpret_cast<const char*>(values_.data()), 4 * values_.size());
  EXPECT_EQ(receiver_.bytes, bytes);
  EXPECT_EQ(receiver_.table.name(), "t");
  EXPECT_EQ(receiver_.table.sha256(), Sha256Hex(bytes));
  EXPECT_LE(receiver_.largest, static_cast<size_t>(kUploadPieceBytes) + 16);
  EXPECT_EQ(table->tensor.shape, (std::vector<int64_t>{300, 1000}));
}

TEST_F(UploadTest, TheServersRefusalIsTheAnswerEvenInTheMiddle) {
  receiver_.status = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too large");
  EXPECT_THAT(Upload(View(values_, {300, 1000})),
              StatusIs(absl::StatusCode::kResourceExhausted, "too large"));
}

TEST_F(UploadTest, MemorySmallerThanTheShapeAndStridesAreRefusedHere) {
  EXPECT_THAT(Upload(View(values_, {301, 1000})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("table: ")));
  EXPECT_THAT(Upload(View(values_, {300, 500}, {1000, 1})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("table: strided")));
}

TEST_F(UploadTest, MetadataIsSentOrRefused) {
  EXPECT_TRUE(
      Upload(View(values_, {300, 1000}), {.metadata = {{"traceparent", "00-1-2-01"}}}).ok());
  EXPECT_EQ(receiver_.traceparent, "00-1-2-01");
  EXPECT_THAT(Upload(View(values_, {300, 1000}), {.metadata = {{"", ""}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("metadata[0]")));
}

TEST_F(UploadTest, ACancelledCallSendsNothing) {
  CancelToken cancel;
  cancel.Cancel();
  EXPECT_THAT(Upload(View(values_, {300, 1000}), {.cancel = cancel}),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("")));
}

}  // namespace
}  // namespace phasor::client_internal
