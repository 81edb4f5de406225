// SPDX-License-Identifier: Apache-2.0
// Tests that the generated class parses responses, and that large outputs are sent by reference.
#include "server/api/response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "phasor/v1/position_embedding_service.pb.h"
#include "proto/convert.h"
#include "proto/grpc_status.h"
#include "server/grpc/message_writer.h"
#include "tests/support/plans.h"
#include "tests/support/requests.h"

namespace phasor::rpc {
namespace {

using ::testing::ElementsAre;

const auto kPlans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };

engine::Item EncodeItemOf(int64_t count) {
  return engine::Item(
      *PrepareEncode(*EncodeRequestFromWire(testing::EncodeOf(count), "item"), kPlans, "item"));
}

engine::Item RopeItemOf(int64_t tokens) {
  return engine::Item(
      *PrepareRope(*RopeRequestFromWire(testing::RopeOf(tokens), "item"), kPlans, "item"));
}

// Output sizes of each item.
using Sizes = std::vector<std::vector<int64_t>>;

// A result whose outputs of the given sizes are filled with 'a', 'b', ...
class Outputs {
 public:
  explicit Outputs(const Sizes& items) : pool_(0) {
    int64_t end = 0;
    for (const auto& sizes : items) {
      engine::ItemResult& item = result_.items.emplace_back();
      item.backend = "cpu";
      for (const int64_t size : sizes) {
        item.outputs.push_back({end, size});
        end += (size + 63) / 64 * 64;
      }
    }
    result_.buffer = pool_.Get(end);
    char letter = 'a';
    for (const auto& item : result_.items) {
      for (const auto& range : item.outputs) {
        std::memset(result_.buffer->data() + range.offset, letter++, range.bytes);
      }
    }
  }

  engine::Result& result() { return result_; }
  int64_t references() const { return result_.buffer.use_count(); }

 private:
  engine::BufferPool pool_;
  engine::Result result_;
};

std::vector<grpc::Slice> SlicesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  return slices;
}

// The message, whose bytes must be those that protobuf writes.
template <typename Message>
Message Parsed(const grpc::ByteBuffer& buffer) {
  std::string bytes;
  for (const grpc::Slice& slice : SlicesOf(buffer)) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  EXPECT_EQ(message.SerializeAsString(), bytes);
  return message;
}

TEST(EncodeResponseTest, SaysShapeBytesAndHowTheyCameToBe) {
  Outputs outputs(Sizes{{96}});
  const std::vector<engine::Item> items = {EncodeItemOf(3)};
  const auto message = Parsed<v1::EncodeResponse>(MakeTensorResponse(items, outputs.result()));
  EXPECT_EQ(message.result().output().dtype(), v1::DTYPE_FLOAT32);
  EXPECT_THAT(message.result().output().shape(), ElementsAre(3, 8));
  EXPECT_EQ(message.result().info().backend(), "cpu");
  EXPECT_EQ(message.result().info().numerics_version(), kNumericsVersion);
  EXPECT_EQ(message.result().info().spec_fingerprint().size(), 32u);
  EXPECT_FALSE(message.result().has_status());
  EXPECT_THAT(message.raw(), ElementsAre(std::string(96, 'a')));
}

TEST(EncodeResponseTest, EmptyOutputHasAnEmptyEntry) {
  Outputs outputs(Sizes{{0}});
  const std::vector<engine::Item> items = {EncodeItemOf(0)};
  const auto message = Parsed<v1::EncodeResponse>(MakeTensorResponse(items, outputs.result()));
  EXPECT_THAT(message.result().output().shape(), ElementsAre(0, 8));
  EXPECT_THAT(message.raw(), ElementsAre(""));
}

TEST(ApplyRoPEResponseTest, HasOneEntryPerTensorInOrder) {
  Outputs outputs(Sizes{{128, 64}});
  const std::vector<engine::Item> items = {RopeItemOf(2)};
  const auto message = Parsed<v1::ApplyRoPEResponse>(MakeTensorResponse(items, outputs.result()));
  ASSERT_EQ(message.result().tensors_size(), 2);
  EXPECT_THAT(message.result().tensors(0).shape(), ElementsAre(2, 2, 8));
  EXPECT_THAT(message.result().tensors(1).shape(), ElementsAre(2, 1, 8));
  EXPECT_THAT(message.raw(), ElementsAre(std::string(128, 'a'), std::string(64, 'b')));
}

TEST(BatchResponseTest, FailedItemsHaveAStatusAndNoEntry) {
  Outputs outputs(Sizes{{32}, {}, {64}});
  outputs.result().items[1].status = absl::NotFoundError("items[1].spec.preset: unknown");
  const std::vector<engine::Item> items = {
      EncodeItemOf(1), engine::Item(outputs.result().items[1].status), EncodeItemOf(2)};
  const auto message =
      Parsed<v1::BatchEncodeResponse>(MakeBatchTensorResponse(items, outputs.result()));
  ASSERT_EQ(message.results_size(), 3);
  EXPECT_EQ(message.results(0).status().code(), 0);
  EXPECT_EQ(message.results(1).status().code(), 5);
  EXPECT_EQ(message.results(1).status().message(), "items[1].spec.preset: unknown");
  EXPECT_FALSE(message.results(1).has_output());
  EXPECT_THAT(message.results(2).output().shape(), ElementsAre(2, 8));
  EXPECT_THAT(message.raw(), ElementsAre(std::string(32, 'a'), std::string(64, 'b')));
}

TEST(BatchResponseTest, EachResultSaysWhatItsOwnCallWould) {
  const std::shared_ptr<const Plan> plan = testing::PlanOf({.preset = "transformer", .dim = 8});
  const auto one_plan = [&](const ResolvedSpec&) -> absl::StatusOr<std::shared_ptr<const Plan>> {
    return plan;
  };
  const auto item = [&](int64_t count, v1::Dtype dtype = v1::DTYPE_FLOAT32) {
    v1::EncodeItem wire = testing::EncodeOf(count);
    wire.set_output_dtype(dtype);
    return engine::Item(*PrepareEncode(*EncodeRequestFromWire(wire, "item"), one_plan, "item"));
  };
  v1::EncodeItem other = testing::EncodeOf(2);
  other.mutable_spec()->set_preset("timestep-sin-cos");
  // Each differs from the one before in at most one thing.
  std::vector<engine::Item> items = {item(3), item(3), item(2), item(2, v1::DTYPE_BFLOAT16)};
  items.resize(12, item(2));
  constexpr size_t kOther = 5, kCuda = 7, kNamed = 8, kFailed = 10;
  items[kOther] =
      engine::Item(*PrepareEncode(*EncodeRequestFromWire(other, "item"), kPlans, "item"));
  std::byte memory[64];
  items[kNamed].outputs[0].place = {.data = memory, .region = "named"};
  Outputs outputs(Sizes(items.size(), {64}));
  engine::Result& result = outputs.result();
  for (size_t i = kCuda; i < items.size(); ++i) result.items[i].backend = "cuda";
  result.items[kFailed].status = absl::InternalError("failed");
  result.items[kFailed].outputs.clear();

  const auto batch = Parsed<v1::BatchEncodeResponse>(MakeBatchTensorResponse(items, result));
  ASSERT_EQ(batch.results_size(), static_cast<int>(items.size()));
  for (size_t i = 0; i < items.size(); ++i) {
    if (i == kFailed) {
      EXPECT_EQ(batch.results(kFailed).status().code(), 13);
      continue;
    }
    Outputs own(Sizes{{64}});
    own.result().items[0].backend = result.items[i].backend;
    const auto call =
        Parsed<v1::EncodeResponse>(MakeTensorResponse({&items[i], 1}, own.result())).result();
    v1::EncodeResult got = batch.results(static_cast<int>(i));
    EXPECT_TRUE(got.has_status()) << i;
    got.clear_status();
    EXPECT_EQ(got.SerializeAsString(), call.SerializeAsString()) << i;
  }
}

TEST(BatchResponseTest, AnItemOfPartsHasAResultForEach) {
  std::vector<engine::Item> items(3, EncodeItemOf(6));
  items[0].parts = 3;  // 2 rows in each
  items[2].parts = 2;
  Outputs outputs(Sizes{{192}, {192}, {192}});
  char* const row = reinterpret_cast<char*>(outputs.result().buffer->data());
  row[64] = 'x';  // the first byte of the second part
  const auto message =
      Parsed<v1::BatchEncodeResponse>(MakeBatchTensorResponse(items, outputs.result()));
  ASSERT_EQ(message.results_size(), 6);
  const int64_t rows[] = {2, 2, 2, 6, 3, 3};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(message.results(i).status().code(), 0) << i;
    EXPECT_THAT(message.results(i).output().shape(), ElementsAre(rows[i], 8)) << i;
  }
  EXPECT_THAT(message.raw(),
              ElementsAre(std::string(64, 'a'), "x" + std::string(63, 'a'), std::string(64, 'a'),
                          std::string(192, 'b'), std::string(96, 'c'), std::string(96, 'c')));
}

TEST(BatchResponseTest, AllPartsOfAnItemThatFailedHaveItsStatus) {
  std::vector<engine::Item> items = {EncodeItemOf(4), EncodeItemOf(1)};
  items[0].parts = 2;
  Outputs outputs(Sizes{{}, {32}});
  outputs.result().items[0].status = absl::InternalError("device");
  const auto message =
      Parsed<v1::BatchEncodeResponse>(MakeBatchTensorResponse(items, outputs.result()));
  ASSERT_EQ(message.results_size(), 3);
  EXPECT_EQ(message.results(0).status().message(), "device");
  EXPECT_EQ(message.results(1).status().message(), "device");
  EXPECT_EQ(message.results(2).status().code(), 0);
  EXPECT_THAT(message.raw(), ElementsAre(std::string(32, 'a')));
}

TEST(BatchResponseTest, ItemThatFailedOnlyInTheEngineHasItsStatus) {
  Outputs outputs(Sizes{{}});
  outputs.result().items[0].status = absl::InvalidArgumentError("items[0].positions: NaN");
  const std::vector<engine::Item> items = {RopeItemOf(1)};
  const auto message =
      Parsed<v1::BatchApplyRoPEResponse>(MakeBatchTensorResponse(items, outputs.result()));
  EXPECT_EQ(message.results(0).status().code(), 3);
  EXPECT_EQ(message.raw_size(), 0);
}

TEST(StreamResponseTest, RepeatsTheIdAndTheChunk) {
  Outputs outputs(Sizes{{32}});
  const engine::Item item = EncodeItemOf(1);
  v1::Chunk chunk;
  chunk.set_first_token(3);
  chunk.set_tokens(1);
  for (const int64_t id : {int64_t{0}, int64_t{7}, int64_t{-1}}) {
    const auto message = Parsed<v1::StreamEncodeResponse>(
        MakeStreamTensorResponse({id, chunk, absl::OkStatus(), &item, &outputs.result()}));
    EXPECT_EQ(message.id(), id);
    EXPECT_EQ(message.chunk().first_token(), 3);
    EXPECT_TRUE(message.result().has_status());
    EXPECT_THAT(message.raw(), ElementsAre(std::string(32, 'a')));
  }
}

TEST(StreamResponseTest, AFailedItemHasOnlyItsStatus) {
  const auto message = Parsed<v1::StreamApplyRoPEResponse>(
      MakeStreamTensorResponse({9, {}, absl::NotFoundError(std::string(2000, 'e'))}));
  EXPECT_EQ(message.id(), 9);
  EXPECT_EQ(message.result().status().code(), 5);
  EXPECT_EQ(message.result().status().message().size(), kMaxStatusMessageBytes);
  EXPECT_EQ(message.result().tensors_size(), 0);
}

TEST(EncodeResponseTest, AnOutputInSharedMemoryHasItsPlaceAndNoBytes) {
  Outputs outputs(Sizes{{96}});
  for (const bool on_device : {false, true}) {
    std::vector<engine::Item> items = {EncodeItemOf(3)};
    engine::Destination& place = items[0].outputs[0].place;
    place.data = outputs.result().buffer->data();
    place.on_device = on_device;
    place.region = "kv";
    place.offset_bytes = 4096;
    const auto message = Parsed<v1::EncodeResponse>(MakeTensorResponse(items, outputs.result()));
    const v1::TensorSpec& tensor = message.result().output();
    EXPECT_EQ(on_device ? tensor.device().region() : tensor.region().region(), "kv");
    EXPECT_EQ(on_device ? tensor.device().offset_bytes() : tensor.region().offset_bytes(), 4096);
    EXPECT_EQ(message.raw_size(), 0);
  }
}

TEST(BatchResponseTest, ZeroItemsAreAnEmptyMessageThatCanBeSent) {
  engine::Result result;
  const grpc::ByteBuffer buffer = MakeBatchTensorResponse({}, result);
  EXPECT_TRUE(buffer.Valid());
  EXPECT_EQ(buffer.Length(), 0u);
}

TEST(ResponseMemoryTest, LargeOutputsAreBorrowedUntilTheMessageIsGone) {
  const int64_t rows = 4096;
  Outputs outputs(Sizes{{rows * 64, rows * 32}});
  const std::vector<engine::Item> items = {RopeItemOf(rows)};
  {
    const grpc::ByteBuffer buffer = MakeTensorResponse(items, outputs.result());
    EXPECT_EQ(outputs.references(), 3);  // ours and one per output
    const std::vector<grpc::Slice> slices = SlicesOf(buffer);
    ASSERT_EQ(slices.size(), 4u);  // header, q, tag of k, k
    const auto* memory = reinterpret_cast<const uint8_t*>(outputs.result().buffer->data());
    EXPECT_EQ(slices[1].begin(), memory);
    EXPECT_EQ(slices[3].begin(), memory + rows * 64);
    const auto message = Parsed<v1::ApplyRoPEResponse>(buffer);
    EXPECT_THAT(message.raw(),
                ElementsAre(std::string(rows * 64, 'a'), std::string(rows * 32, 'b')));
  }
  EXPECT_EQ(outputs.references(), 1);
}

TEST(ResponseMemoryTest, SmallOutputsOfALargeResponseAreCopied) {
  const int64_t rows = 4096;
  Outputs outputs(Sizes{{kCopiedOutputBytes}, {rows * 32}, {kCopiedOutputBytes + 32}});
  const std::vector<engine::Item> items = {EncodeItemOf(kCopiedOutputBytes / 32),
                                           EncodeItemOf(rows),
                                           EncodeItemOf(kCopiedOutputBytes / 32 + 1)};
  const grpc::ByteBuffer buffer = MakeBatchTensorResponse(items, outputs.result());
  EXPECT_EQ(outputs.references(), 3);  // ours and one per large output
  EXPECT_THAT(Parsed<v1::BatchEncodeResponse>(buffer).raw(),
              ElementsAre(std::string(kCopiedOutputBytes, 'a'), std::string(rows * 32, 'b'),
                          std::string(kCopiedOutputBytes + 32, 'c')));
}

TEST(ResponseMemoryTest, SmallResponsesAreOneSliceAndHoldNoMemory) {
  Outputs outputs(Sizes{{3200}});
  const std::vector<engine::Item> items = {EncodeItemOf(100)};
  const grpc::ByteBuffer buffer = MakeTensorResponse(items, outputs.result());
  EXPECT_EQ(SlicesOf(buffer).size(), 1u);
  EXPECT_EQ(outputs.references(), 1);
}

}  // namespace
}  // namespace phasor::rpc
