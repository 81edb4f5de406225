// SPDX-License-Identifier: Apache-2.0
// Tests one inference: the same bytes as phasor.v1, memory that is accounted for, and times that
// add up.
#include "server/oip/infer_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"
#include "kernels/base/sha256.h"
#include "tests/server/oip/requests.h"
#include "tests/support/fake_backend.h"
#include "tests/support/shared_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::oip {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::SharedMemory;
using ::phasor::testing::StatusIs;
using ::phasor::testing::TempDir;
using ::testing::HasSubstr;

class InferCallTest : public ::testing::Test {
 protected:
  InferCallTest() {
    context_ = {&engine_, nullptr, {.regions = &regions_}, &models_, &statistics_,
                1 << 20,  1 << 16};
  }

  static memory::RegionStoreOptions Enabled() {
    memory::RegionStoreOptions options;
    options.enabled = true;
    return options;
  }
  static engine::EngineOptions OneWorker() {
    engine::EngineOptions options;
    options.workers = 1;
    return options;
  }

  InferAnswer InferBytes(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1);
    absl::Notification done;
    InferAnswer answer;
    StartInfer(context_, &request, caller_, [&](InferAnswer got) {
      answer = std::move(got);
      done.Notify();
    });
    done.WaitForNotification();
    return answer;
  }

  inference::ModelInferResponse Infer(const inference::ModelInferRequest& request) {
    const InferAnswer answer = InferBytes(request.SerializeAsString());
    EXPECT_THAT(answer.status, IsOk());
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(answer.response.Dump(&slices).ok());
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    inference::ModelInferResponse response;
    EXPECT_TRUE(response.ParseFromString(bytes));
    return response;
  }

  absl::Status Failure(const inference::ModelInferRequest& request) {
    return InferBytes(request.SerializeAsString()).status;
  }

  const std::unique_ptr<Backend> backend_ = *MakeBackend({"cpu", 1});
  engine::Engine engine_{OneWorker(), backend_.get(), Clock::Real()};
  memory::RegionStore regions_{Enabled()};
  ModelCatalogue models_;
  StatisticsBook statistics_;
  InferContext context_;
  InferCaller caller_ = {
      .cancelled = [] { return false; }, .stream = false, .quota = {}, .regions = {"me"}};
};

TEST_F(InferCallTest, EncodesSineAndCosine) {
  const auto response = Infer(EncodeAt({0, 3}));
  const auto row = ValuesOf<float>(response.raw_output_contents(0));
  ASSERT_EQ(row.size(), 16u);
  for (int j = 0; j < 4; ++j) {
    const double angle = 3.0 * std::pow(10000.0, -j / 4.0);
    EXPECT_EQ(row[2 * j], 0.0F);
    EXPECT_EQ(row[2 * j + 1], 1.0F);
    EXPECT_NEAR(row[8 + 2 * j], std::sin(angle), 6e-8);
    EXPECT_NEAR(row[8 + 2 * j + 1], std::cos(angle), 6e-8);
  }
}

TEST_F(InferCallTest, LargeRequestsAreNotReadWhenNobodyWaitsForThem) {
  inference::ModelInferRequest request = EncodeAt({0});
  (*request.mutable_parameters())["axes_dim"].set_string_param(std::string(30 << 10, '['));
  EXPECT_THAT(Failure(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("parameters.axes_dim: nested deeper")));
  caller_.deadline = absl::InfinitePast();
  EXPECT_THAT(Failure(request), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("read")));
  caller_.deadline = absl::InfiniteFuture();
  caller_.cancelled = [] { return true; };
  EXPECT_THAT(Failure(request), StatusIs(absl::StatusCode::kCancelled, HasSubstr("caller")));
  // The answers of a stream have the ids of its requests.
  caller_.stream = true;
  EXPECT_EQ(InferBytes(request.SerializeAsString()).id, "r1");
}

TEST_F(InferCallTest, ATableIsReadOnAnotherThread) {
  const TempDir dir;
  std::atomic<std::thread::id> reader;
  const auto here = *tables::TableStore::Open(
      {.directory = dir.path(), .step_hook = [&](const std::string& step) {
         if (step == "read") reader = std::this_thread::get_id();
         return absl::OkStatus();
       }});
  const auto other = *tables::TableStore::Open({.directory = dir.path()});
  const std::string zeros(32 * 2 * 4, '\0');
  auto upload = *other->Begin("rel", {Dtype::kFloat32, {32, 2}, {}}, Sha256Hex(zeros));
  ASSERT_THAT(upload->Append({reinterpret_cast<const std::byte*>(zeros.data()), zeros.size()}),
              IsOk());
  ASSERT_THAT(other->Commit(std::move(upload)), IsOk());
  TaskThread reads;
  context_.tables = here.get();
  context_.table_reads = &reads;
  inference::ModelInferRequest bias;
  bias.set_model_name("t5");
  (*bias.mutable_parameters())["table"].set_string_param("rel");
  (*bias.mutable_parameters())["heads"].set_int64_param(2);
  for (const char* const name : {"QUERY_POSITIONS", "KEY_POSITIONS"}) {
    AddInput(name, "INT64", {3}, &bias);
    bias.add_raw_input_contents(BytesOfValues<int64_t>({0, 1, 2}));
  }
  EXPECT_EQ(Infer(bias).raw_output_contents(0).size(), 2u * 3 * 3 * 4);
  EXPECT_NE(reader.load(), std::thread::id());
  EXPECT_NE(reader.load(), std::this_thread::get_id());
  (*bias.mutable_parameters())["table"].set_string_param("unknown");
  EXPECT_THAT(Failure(bias), StatusIs(absl::StatusCode::kNotFound, HasSubstr("'unknown'")));
}

TEST_F(InferCallTest, RotatesPairsOfLanes) {
  const auto response = Infer(RotateAt(2));
  ASSERT_EQ(response.raw_output_contents_size(), 2);
  const auto key = ValuesOf<float>(response.raw_output_contents(1));
  ASSERT_EQ(key.size(), 8u);
  for (int j = 0; j < 4; ++j) {
    const double angle = 2.0 * std::pow(10000.0, -j / 4.0);
    EXPECT_NEAR(key[j], std::cos(angle) - std::sin(angle), 3e-7);
    EXPECT_NEAR(key[j + 4], std::sin(angle) + std::cos(angle), 3e-7);
  }
}

TEST_F(InferCallTest, SharedMemoryGivesTheSameBytesAsTheMessage) {
  const std::string inlined = Infer(EncodeAt({5, 6, 7})).raw_output_contents(0);
  const SharedMemory in("pad8pad8" + BytesOfValues<int64_t>({5, 6, 7}));
  const SharedMemory out(std::string(200, '.'));
  ASSERT_THAT(regions_.Register("in", {in.key(), 0, 32}, {"me"}), IsOk());
  ASSERT_THAT(regions_.Register("out", {out.key(), 4, 150}, {"me"}), IsOk());
  inference::ModelInferRequest request = EncodeAt({5, 6, 7});
  request.clear_raw_input_contents();
  SetRegion("in", 24, 8, request.mutable_inputs(0)->mutable_parameters());
  request.add_outputs()->set_name("ENCODING");
  SetRegion("out", 120, 8, request.mutable_outputs(0)->mutable_parameters());
  const auto response = Infer(request);
  EXPECT_EQ(response.raw_output_contents(0), "");
  EXPECT_EQ(out.bytes(), std::string(12, '.') + inlined + std::string(200 - 12 - 96, '.'));
}

TEST_F(InferCallTest, MemoryThatShrankIsAnErrorOfItsTensor) {
  const SharedMemory in(std::string(24, '\0'));
  ASSERT_THAT(regions_.Register("in", {in.key(), 0, 24}, {"me"}), IsOk());
  inference::ModelInferRequest request = EncodeAt({5, 6, 7});
  request.clear_raw_input_contents();
  SetRegion("in", 24, 0, request.mutable_inputs(0)->mutable_parameters());
  in.Resize(8);
  EXPECT_THAT(Failure(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("inputs[0]: the shared memory "
                                                                     "was shrunk")));
}

// Q_OUT goes to the bytes that Q came from, or to others.
TEST_F(InferCallTest, AResultThatHasNoPlaceLeftFailsBeforeAnythingIsComputed) {
  const std::string q = BytesOfValues(std::vector<float>(16, 1.0F));
  const SharedMemory memory(q + q);
  const SharedMemory shrunk(std::string(32, '.'));
  ASSERT_THAT(regions_.Register("q", {memory.key(), 0, 128}, {"me"}), IsOk());
  ASSERT_THAT(regions_.Register("k", {shrunk.key(), 0, 32}, {"me"}), IsOk());
  shrunk.Resize(8);
  for (const int64_t offset : {64, 0}) {
    inference::ModelInferRequest request = RotateAt(7);
    request.mutable_raw_input_contents()->DeleteSubrange(1, 1);
    SetRegion("q", 64, 0, request.mutable_inputs(1)->mutable_parameters());
    request.add_outputs()->set_name("Q_OUT");
    SetRegion("q", 64, offset, request.mutable_outputs(0)->mutable_parameters());
    request.add_outputs()->set_name("K_OUT");
    SetRegion("k", 32, 0, request.mutable_outputs(1)->mutable_parameters());
    EXPECT_THAT(Failure(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("outputs[1]: the shared memory was")))
        << offset;
    EXPECT_EQ(memory.bytes() == q + q, true) << offset;
  }
}

TEST_F(InferCallTest, NumbersAreCheckedAndNamedAsInTheRequest) {
  inference::ModelInferRequest request = EncodeAt({1});
  request.mutable_inputs(0)->set_datatype("FP64");
  request.set_raw_input_contents(0, BytesOfValues<double>({std::nan("")}));
  EXPECT_THAT(Failure(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("inputs[0]: element 0")));
}

TEST_F(InferCallTest, RefusesWhatDoesNotParse) {
  EXPECT_THAT(InferBytes("\x0A\x7F").status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("request: ")));
  EXPECT_THAT(InferBytes("\x0A\x02\xC3\x28").status,  // not UTF-8
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not parse")));
  EXPECT_THAT(InferBytes("").status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("model")));
}

TEST_F(InferCallTest, StatisticsGrowWithEveryCall) {
  Infer(EncodeAt({1}));
  Infer(EncodeAt({1}));
  inference::ModelInferRequest wrong = EncodeAt({1});
  wrong.clear_raw_input_contents();
  EXPECT_FALSE(Failure(wrong).ok());
  const auto report = statistics_.Report({PresetSet().Find("transformer")});
  const inference::InferStatistics& stats = report.model_stats(0).inference_stats();
  EXPECT_EQ(stats.success().count(), 2u);
  EXPECT_EQ(stats.queue().count(), 2u);
  EXPECT_EQ(stats.fail().count(), 1u);
  EXPECT_EQ(stats.success().ns(), stats.queue().ns() + stats.compute_input().ns() +
                                      stats.compute_infer().ns() + stats.compute_output().ns());
}

// A call of the fake backend is held until it is let go, so that others wait in the queue.
class InferCallQueueTest : public ::testing::Test {
 protected:
  InferCallQueueTest() {
    backend_.Hold();
    Start(EncodeAt({1}), &first_);
    backend_.WaitForRuns(1);
  }
  ~InferCallQueueTest() override {
    backend_.Release();
    first_.done.WaitForNotification();
  }

  struct Call {
    absl::Status status;
    absl::Notification done;
    std::atomic<bool> cancelled = false;
  };

  void Start(const inference::ModelInferRequest& message, Call* call) {
    const grpc::Slice slice(message.SerializeAsString());
    grpc::ByteBuffer request(&slice, 1);
    StartInfer(context_, &request,
               {absl::InfiniteFuture(), 0, [call] { return call->cancelled.load(); }, false},
               [call](const InferAnswer& answer) {
                 call->status = answer.status;
                 call->done.Notify();
               });
  }

  static engine::EngineOptions OneWorker() {
    engine::EngineOptions options;
    options.workers = 1;
    options.inline_bytes = 0;
    return options;
  }

  FakeBackend backend_;
  engine::Engine engine_{OneWorker(), &backend_, Clock::Real()};
  memory::RegionStore regions_{memory::RegionStoreOptions()};
  ModelCatalogue models_;
  StatisticsBook statistics_;
  const InferContext context_ = {&engine_, nullptr, {.regions = &regions_}, &models_, &statistics_,
                                 1 << 20,  1 << 16};
  Call first_;
};

TEST_F(InferCallQueueTest, ATimeoutOfTheRequestIsADeadline) {
  inference::ModelInferRequest hurried = EncodeAt({1});
  (*hurried.mutable_parameters())["timeout"].set_int64_param(1000);
  Call second;
  Start(hurried, &second);
  second.done.WaitForNotification();
  EXPECT_THAT(second.status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("queue")));
}

TEST_F(InferCallQueueTest, ACallerThatIsGoneLeavesTheQueue) {
  Call second;
  Start(EncodeAt({1}), &second);
  second.cancelled = true;
  second.done.WaitForNotification();
  EXPECT_EQ(second.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(backend_.runs(), 1);
}

}  // namespace
}  // namespace phasor::oip
