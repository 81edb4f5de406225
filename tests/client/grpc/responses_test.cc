// SPDX-License-Identifier: Apache-2.0
// Tests that an answer that does not match its call never reaches the caller's memory.
#include "client/grpc/responses.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "phasor/v1/position_embedding_service.pb.h"
#include "tests/client/grpc/fake_server.h"

namespace phasor::client_internal {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInternal = absl::StatusCode::kInternal;

template <typename Message>
ReceivedMessage Received(const Message& message) {
  return *ReadRawMessage(ToBuffer(message.SerializeAsString()));
}

std::string Floats(std::vector<float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

void SetTensor(v1::TensorSpec* tensor, std::vector<int64_t> shape) {
  tensor->set_dtype(v1::DTYPE_FLOAT32);
  tensor->mutable_shape()->Assign(shape.begin(), shape.end());
}

v1::EncodeResponse TwoRows() {
  v1::EncodeResponse response;
  SetTensor(response.mutable_result()->mutable_output(), {2, 2});
  response.mutable_result()->mutable_info()->set_backend("cpu");
  response.add_raw(Floats({1, 2, 3, 4}));
  return response;
}

TEST(ResponsesTest, RowsGoToTheResultOrTheCaller) {
  EncodeCall call{.positions = {5, 6}};
  EncodeResult result;
  ASSERT_TRUE(ReadResponse(Received(TwoRows()), call, 0, result).ok());
  EXPECT_THAT(result.output.shape, ElementsAre(2, 2));
  EXPECT_EQ(std::memcmp(result.bytes.data(), TwoRows().raw(0).data(), 16), 0);
  EXPECT_EQ(result.info.backend, "cpu");

  std::vector<float> out(2 * 3, 9);
  call.output = MutableView(out, {2, 2}, {3, 1});
  ASSERT_TRUE(ReadResponse(Received(TwoRows()), call, 0, result).ok());
  EXPECT_THAT(out, ElementsAre(1, 2, 9, 3, 4, 9));
}

TEST(ResponsesTest, OutputsOfTheWrongShapeAreTheCallersError) {
  std::vector<float> out(4, 9);
  EncodeCall call{.positions = {5, 6}, .output = MutableView(out, {1, 4})};
  EncodeResult result;
  EXPECT_EQ(ReadResponse(Received(TwoRows()), call, 0, result),
            absl::InvalidArgumentError("item.output: FLOAT32 [1, 4]; must be FLOAT32 [2, 2]"));
  EXPECT_THAT(out, Each(9));
}

TEST(ResponsesTest, RowsUnlikeTheRequestAreInternalErrors) {
  const std::vector<std::function<void(v1::EncodeResponse&)>> faults = {
      [](auto& r) { r.clear_raw(); },
      [](auto& r) { r.add_raw("more"); },
      [](auto& r) { r.mutable_raw(0)->pop_back(); },
      [](auto& r) { r.mutable_raw(0)->push_back('x'); },
      [](auto& r) { r.clear_result(); },
      [](auto& r) { r.mutable_result()->mutable_output()->set_dtype(v1::DTYPE_FLOAT64); },
      [](auto& r) { r.mutable_result()->mutable_output()->set_dtype(v1::Dtype(99)); },
      [](auto& r) { r.mutable_result()->mutable_output()->set_shape(0, 4); },
      [](auto& r) { r.mutable_result()->mutable_output()->set_shape(0, -2); },
      [](auto& r) { r.mutable_result()->mutable_output()->set_shape(0, int64_t{1} << 62); },
      [](auto& r) {
        SetTensor(r.mutable_result()->mutable_output(), {1, 4});
      },
      [](auto& r) { SetTensor(r.mutable_result()->mutable_output(), {4}); },
      [](auto& r) { r.mutable_result()->mutable_output()->add_strides(1); },
      [](auto& r) { r.mutable_result()->mutable_output()->mutable_region()->set_region("r"); },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    v1::EncodeResponse response = TwoRows();
    faults[i](response);
    std::vector<float> out(4, 9);
    const EncodeCall call{.positions = IntegerRange{.count = 2},
                          .output = MutableView(out, {2, 2})};
    EncodeResult result;
    EXPECT_EQ(ReadResponse(Received(response), call, 0, result).code(), kInternal) << i;
    EXPECT_THAT(out, Each(9)) << i;
  }
}

// Pools of 4, 8 and 4 bytes, of which the server has written the first and the last.
v1::MoveKeysResponse Moved() {
  v1::MoveKeysResponse response;
  v1::MoveKeysResult& result = *response.mutable_result();
  result.add_specs()->set_fingerprint("f");
  result.set_tokens(5);
  for (const int pool : {0, 2}) result.add_inline_pools(pool);
  response.add_raw("aaaa");
  response.add_raw("cccc");
  return response;
}

TEST(ResponsesTest, PoolsThatWereWrittenReplaceTheCallers) {
  std::string memory(16, '.');
  const auto bytes = absl::MakeSpan(reinterpret_cast<std::byte*>(memory.data()), memory.size());
  MoveCall call{.pools = {bytes.subspan(0, 4), bytes.subspan(4, 8), bytes.subspan(12)}};
  call.specs.resize(1);
  call.layers.resize(1);
  MoveResult result;
  ASSERT_TRUE(ReadResponse(Received(Moved()), call, 0, result).ok());
  EXPECT_EQ(memory, "aaaa........cccc");
  EXPECT_EQ(result.tokens, 5);
  EXPECT_EQ(result.specs[0].fingerprint, "f");
  EXPECT_THAT(result.differences, IsEmpty());
}

TEST(ResponsesTest, MovesUnlikeTheRequestAreInternalErrors) {
  const std::vector<std::function<void(v1::MoveKeysResponse&)>> faults = {
      [](auto& r) { r.clear_raw(); },
      [](auto& r) { r.add_raw("more"); },
      [](auto& r) { r.mutable_raw(1)->pop_back(); },
      [](auto& r) { r.mutable_result()->set_inline_pools(1, 3); },
      [](auto& r) { r.mutable_result()->set_inline_pools(1, 1); },  // of 8 bytes
      [](auto& r) { r.mutable_result()->set_inline_pools(1, 0); },
      [](auto& r) { r.mutable_result()->set_inline_pools(0, -1); },
      [](auto& r) { r.mutable_result()->clear_specs(); },
      [](auto& r) { r.mutable_result()->add_differences(); },
  };
  std::string memory(16, '.');
  const auto bytes = absl::MakeSpan(reinterpret_cast<std::byte*>(memory.data()), memory.size());
  MoveCall call{.pools = {bytes.subspan(0, 4), bytes.subspan(4, 8), bytes.subspan(12)}};
  call.specs.resize(1);
  call.layers.resize(1);
  MoveResult result;
  for (size_t i = 0; i < faults.size(); ++i) {
    v1::MoveKeysResponse response = Moved();
    faults[i](response);
    EXPECT_EQ(ReadResponse(Received(response), call, 0, result).code(), kInternal) << i;
    EXPECT_EQ(memory, std::string(16, '.')) << i;
  }
  // The server writes two of the pools where they lie, so one at most comes back.
  EXPECT_EQ(ReadResponse(Received(Moved()), call, 2, result).code(), kInternal);
  call.mode = MoveMode::kCompare;  // writes nothing
  v1::MoveKeysResponse response = Moved();
  response.mutable_result()->add_differences();
  EXPECT_EQ(ReadResponse(Received(response), call, 0, result).code(), kInternal);
  response.clear_raw();
  response.mutable_result()->clear_inline_pools();
  EXPECT_TRUE(ReadResponse(Received(response), call, 0, result).ok());
  EXPECT_EQ(result.differences.size(), 1u);
  EXPECT_EQ(memory, std::string(16, '.'));
}

TEST(ResponsesTest, PoolsOfABatchGoToTheirCalls) {
  std::string memory(24, '.');
  const auto bytes = absl::MakeSpan(reinterpret_cast<std::byte*>(memory.data()), memory.size());
  BatchCall<MoveCall> batch;
  for (size_t i = 0; i < 3; ++i) {
    batch.calls.push_back({.pools = {bytes.subspan(8 * i, 4), bytes.subspan(8 * i + 4, 4)}});
    batch.local.emplace_back();
    batch.destinations.push_back(i == 0 ? 1 : 0);
  }
  v1::BatchMoveKeysResponse response;
  response.add_results()->add_inline_pools(1);  // the other pool is shared
  response.add_results()->mutable_status()->set_code(3);
  for (const int pool : {0, 1}) {
    if (pool == 0) response.add_results();
    response.mutable_results(2)->add_inline_pools(pool);
  }
  for (const char* raw : {"aaaa", "bbbb", "cccc"}) response.add_raw(raw);
  std::vector<absl::StatusOr<MoveResult>> results;
  v1::BatchMoveKeysResponse wrong = response;
  wrong.add_raw("more");
  EXPECT_EQ(ReadResponse(Received(wrong), batch, 0, results).code(), kInternal);
  wrong = response;
  wrong.mutable_results(0)->set_inline_pools(0, 0);
  wrong.mutable_results(0)->add_inline_pools(1);
  EXPECT_EQ(ReadResponse(Received(wrong), batch, 0, results).code(), kInternal);
  EXPECT_EQ(memory, std::string(24, '.'));
  ASSERT_TRUE(ReadResponse(Received(response), batch, 0, results).ok());
  EXPECT_EQ(memory, "....aaaa........bbbbcccc");
  EXPECT_TRUE(results[0].ok());
  EXPECT_EQ(results[1].status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ResponsesTest, UnparsableHeadersAreInternalErrors) {
  EncodeResult result;
  const WalkedMessage message{.header = "\x0A\x03\xFF\xFF\xFF"};
  EXPECT_EQ(ReadResponse(message, EncodeCall{}, 0, result).code(), kInternal);
  EXPECT_FALSE(ReadResolveSpecResponse("\x08").ok());
  EXPECT_EQ(ReadResolveModelResponse("\x0A\x7F").status().code(), kInternal);
  v1::ResolveModelResponse model;
  model.add_parts()->add_layers()->set_spec(0);
  EXPECT_EQ(ReadResolveModelResponse(model.SerializeAsString()).status().code(), kInternal);
  EXPECT_FALSE(ReadListPresetsResponse("\x0A\x7F").ok());
  EXPECT_FALSE(ReadServerInfoResponse("\x0A\x7F").ok());
}

TEST(ResponsesTest, DevicesAreListedAlsoByServersThatKnewOnlyOne) {
  v1::GetServerInfoResponse response;
  const auto devices = [&] {
    return ReadServerInfoResponse(response.SerializeAsString())->devices;
  };
  EXPECT_THAT(devices(), IsEmpty());
  v1::Device* const old = response.mutable_device();
  old->set_name("Card");
  old->set_uuid("GPU-a");
  old->set_state(v1::DEVICE_STATE_WORKING);
  const ServerDevice first{0, "Card", "GPU-a", true, ""};
  EXPECT_THAT(devices(), ElementsAre(first));
  *response.add_devices() = *old;
  v1::Device* const second = response.add_devices();
  second->set_number(2);
  second->set_uuid("GPU-b");
  second->set_state(v1::DEVICE_STATE_WAITING);
  second->set_error("Xid");
  EXPECT_THAT(devices(), ElementsAre(first, ServerDevice{2, "", "GPU-b", false, "Xid"}));
}

TEST(ResponsesTest, RotationsAreCopiedAllOrNone) {
  std::vector<float> q(4, 9), k(4, 9);
  RopeCall call{.tensors = {MutableView(q, {1, 1, 4}), MutableView(k, {1, 1, 4})}};
  v1::ApplyRoPEResponse response;
  for (int i = 0; i < 2; ++i) {
    SetTensor(response.mutable_result()->add_tensors(), {1, 1, 4});
    response.add_raw(Floats({1, 2, 3, 4}));
  }
  RunInfo info;
  v1::ApplyRoPEResponse bad = response;
  bad.mutable_raw(1)->pop_back();  // the first is good
  EXPECT_EQ(ReadResponse(Received(bad), call, 0, info).code(), kInternal);
  bad = response;
  SetTensor(bad.mutable_result()->mutable_tensors(1), {1, 2, 2});
  EXPECT_EQ(ReadResponse(Received(bad), call, 0, info).code(), kInternal);
  bad = response;
  bad.mutable_result()->mutable_tensors()->RemoveLast();
  EXPECT_EQ(ReadResponse(Received(bad), call, 0, info).code(), kInternal);
  EXPECT_THAT(q, Each(9));

  ASSERT_TRUE(ReadResponse(Received(response), call, 0, info).ok());
  EXPECT_THAT(q, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(k, ElementsAre(1, 2, 3, 4));
}

TEST(ResponsesTest, OutputsThatTheServerWroteAreNotInTheMessage) {
  std::vector<float> q(4, 9), k(4, 9);
  const RopeCall call{.tensors = {MutableView(q, {1, 1, 4}), MutableView(k, {1, 1, 4})}};
  v1::ApplyRoPEResponse response;
  SetTensor(response.mutable_result()->add_tensors(), {1, 1, 4});
  *response.mutable_result()->add_tensors() = response.result().tensors(0);
  response.mutable_result()->mutable_tensors(0)->mutable_region()->set_region("r");
  response.add_raw(Floats({1, 2, 3, 4}));
  RunInfo info;
  ASSERT_TRUE(ReadResponse(Received(response), call, 1, info).ok());
  EXPECT_THAT(q, Each(9));
  EXPECT_THAT(k, ElementsAre(1, 2, 3, 4));
  for (const int asked_for : {0, 2}) {
    EXPECT_EQ(ReadResponse(Received(response), call, asked_for, info).code(), kInternal);
  }
}

TEST(ResponsesTest, OutputsOnADeviceAreNeverInTheMessage) {
  const DeviceMemory memory(std::make_shared<DeviceRegistration>(
      "kv", 1024, nullptr, [](absl::Duration) { return absl::OkStatus(); }));
  std::vector<float> k(4, 9);
  const RopeCall call{
      .tensors = {memory.View({Dtype::kFloat32, {1, 1, 4}, {}}), MutableView(k, {1, 1, 4})}};
  v1::ApplyRoPEResponse response;
  SetTensor(response.mutable_result()->add_tensors(), {1, 1, 4});
  *response.mutable_result()->add_tensors() = response.result().tensors(0);
  response.add_raw(Floats({1, 2, 3, 4}));
  response.mutable_result()->mutable_tensors(1)->mutable_device()->set_region("kv");
  RunInfo info;
  EXPECT_EQ(ReadResponse(Received(response), call, 1, info).code(), kInternal) << "the other one";
  EXPECT_THAT(k, Each(9));
  response.mutable_result()->mutable_tensors()->SwapElements(0, 1);
  ASSERT_TRUE(ReadResponse(Received(response), call, 1, info).ok());
  EXPECT_THAT(k, ElementsAre(1, 2, 3, 4));
}

TEST(ResponsesTest, BatchItemsKeepTheirPlaces) {
  BatchCall<EncodeCall> batch;
  batch.calls.resize(3);
  batch.calls[2].positions = {5, 6};
  batch.destinations = {0, 1, 0};  // the second would have been written, and failed
  batch.local = {absl::InvalidArgumentError("items[0].add_to: small"), absl::OkStatus(),
                 absl::OkStatus()};
  v1::BatchEncodeResponse response;
  response.add_results()->mutable_status()->set_code(3);
  auto* failed = response.add_results()->mutable_status();
  failed->set_code(5);
  failed->set_message("items[1].spec.preset: unknown");
  *response.add_results() = TwoRows().result();
  response.add_raw(TwoRows().raw(0));
  std::vector<absl::StatusOr<EncodeResult>> results;
  ASSERT_TRUE(ReadResponse(Received(response), batch, 0, results).ok());
  EXPECT_EQ(results[0].status(), batch.local[0]);
  EXPECT_EQ(results[1].status(), absl::NotFoundError("items[1].spec.preset: unknown"));
  EXPECT_EQ(results[2]->bytes.size(), 16);
  response.mutable_results()->RemoveLast();
  EXPECT_EQ(ReadResponse(Received(response), batch, 0, results).code(), kInternal);
}

TEST(ResponsesTest, HealthIsReadByHand) {
  EXPECT_EQ(WriteHealthRequest(""), "");
  EXPECT_EQ(WriteHealthRequest("ab"),
            "\x0A\x02"
            "ab");
  EXPECT_EQ(WriteHealthRequest(std::string(200, 's')).substr(0, 3), "\x0A\xC8\x01");
  EXPECT_EQ(*ReadHealthResponse("\x08\x01"), Health::kServing);
  EXPECT_EQ(*ReadHealthResponse("\x08\x02"), Health::kNotServing);
  EXPECT_EQ(*ReadHealthResponse(""), Health::kUnknown);
  EXPECT_EQ(ReadHealthResponse("\x10\x01").status().code(), kInternal);
}

TEST(ResponsesTest, EveryNumberOfASpecArrives) {
  v1::ResolveSpecResponse response;
  response.mutable_spec()->set_rope_theta(5e5);
  response.set_width(64);
  response.set_amplitude(1.5);
  v1::ResolvedPair* pair = response.add_pairs();
  pair->set_axis(2);
  pair->set_turns_whole(-3);
  pair->set_turns_fraction(uint64_t{1} << 63);
  pair->set_inv_freq(0.25);
  pair->set_phase_offset(7);
  pair->set_head(1);
  pair->set_pair(5);
  pair->set_first_lane(0);
  auto details = ReadResolveSpecResponse(response.SerializeAsString());
  ASSERT_TRUE(details.ok()) << details.status();
  EXPECT_EQ(details->spec.rope_theta, 5e5);
  EXPECT_EQ(details->width, 64);
  EXPECT_EQ(details->amplitude, 1.5);
  EXPECT_EQ(details->pairs[0].axis, 2);
  EXPECT_EQ(details->pairs[0].turns, (Frequency{-3, uint64_t{1} << 63}));
  EXPECT_EQ(details->pairs[0].inv_freq, 0.25);
  EXPECT_EQ(details->pairs[0].phase_offset, 7u);
  EXPECT_EQ(details->pairs[0].head, 1);
  EXPECT_EQ(details->pairs[0].pair, 5);
  EXPECT_EQ(details->pairs[0].first_lane, 0);
  EXPECT_EQ(details->pairs[0].sine_column, std::nullopt);
}

}  // namespace
}  // namespace phasor::client_internal
