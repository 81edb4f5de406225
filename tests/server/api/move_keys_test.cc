// SPDX-License-Identifier: Apache-2.0
// Tests that MoveKeys gives pools their memory, refuses those that overlap, and answers with what
// was written and found. The backend is a fake that moves nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "proto/convert_move.h"
#include "server/api/request_view.h"
#include "server/memory/lease_store.h"
#include "tests/server/api/test_server.h"
#include "tests/support/memfd.h"
#include "tests/support/status_matchers.h"

namespace phasor::rpc {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kExhausted;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kPoolBytes = 64;  // bfloat16 [4 slots, 1 head, 8 lanes]

// Moves 3 tokens from pool 0 to pool 1; in pool 0 for MOVE.
v1::MoveKeysRequest RequestOf(MoveMode mode) {
  MoveRequest request;
  request.pools = {kPoolBytes, kPoolBytes};
  request.layouts = {{.pages = 4, .heads = 1, .head_dim = 8}};
  request.specs = {{.spec = {.preset = "rope-half-split", .head_dim = 8}}};
  request.layers = {{.spec = 0}};
  if (mode != MoveMode::kMove) request.layers[0].to_place = KeyPlace{1, 0};
  request.groups = {
      {.runs = {{.block_table = {0, 1, 2, 3}, .first = 1, .count = 3, .from = 0, .to = 9}}}};
  request.mode = mode;
  v1::MoveKeysRequest wire;
  *wire.mutable_item() = ToWire(request);
  for (const char letter : {'a', 'b'}) wire.add_raw(std::string(kPoolBytes, letter));
  return wire;
}

class MoveKeysTest : public ::testing::Test {
 protected:
  // Views a request; its bytes live as long as the test.
  absl::StatusOr<RequestView> View(const v1::MoveKeysRequest& request,
                                   int64_t max_message_bytes = 1 << 20) {
    return View(ParseMoveKeys, request, max_message_bytes);
  }
  absl::StatusOr<RequestView> View(const v1::BatchMoveKeysRequest& request) {
    return View(ParseBatchMoveKeys, request, 1 << 20);
  }
  template <typename Parse>
  absl::StatusOr<RequestView> View(Parse parse, const google::protobuf::MessageLite& request,
                                   int64_t max_message_bytes) {
    bytes_ = request.SerializeAsString();
    const absl::Span<const std::byte> piece(reinterpret_cast<const std::byte*>(bytes_.data()),
                                            bytes_.size());
    const auto walked = WalkMessage({piece}, {});
    EXPECT_THAT(walked, IsOk());
    const auto plans = [](const ResolvedSpec& spec) { return CompilePlan(spec); };
    return parse(*walked, ViewContext{plans, "cpu", max_message_bytes, 8, nullptr, {{&store_}}});
  }
  // Puts pool `i` into the lease, and removes its entry, which must be the last.
  void Lease(int i, int64_t offset, v1::MoveKeysRequest* request) {
    v1::RegionRef* const region = request->mutable_item()->mutable_pools(i)->mutable_region();
    region->set_region(token_);
    region->set_offset_bytes(offset);
    request->mutable_raw()->RemoveLast();
  }

  const testing::Memfd memfd_{int64_t{1000}};
  memory::LeaseStore store_{memory::OwnerLimits{}};
  const std::string token_ = *store_.Add(memfd_.fd(), "me");
  std::string bytes_;
};

TEST_F(MoveKeysTest, InlinePoolsHaveTheirEntries) {
  const auto view = View(RequestOf(MoveMode::kCopyOnWrite));
  ASSERT_THAT(view, IsOk());
  const engine::Item& item = view->items[0];
  for (const int i : {0, 1}) {
    const PieceList& bytes = item.Find(Role::kPool, i)->bytes;
    ASSERT_EQ(PieceBytes(bytes), kPoolBytes);
    EXPECT_EQ(static_cast<char>(bytes[0][0]), i == 0 ? 'a' : 'b');
  }
  EXPECT_EQ(view->response_bytes, kPoolBytes);  // the pool that is written
  EXPECT_EQ(view->bound.shared_bytes, 2 * 3 * 16);
  EXPECT_EQ(view->copied_bytes, 3 * 4 * 8);  // slots and positions
}

TEST_F(MoveKeysTest, LeasedPoolsAreReadAndWrittenWhereTheyLie) {
  v1::MoveKeysRequest request = RequestOf(MoveMode::kCopyOnWrite);
  Lease(1, 101, &request);  // keys may begin at any byte
  Lease(0, 7, &request);
  const auto view = View(request);
  ASSERT_THAT(view, IsOk());
  const engine::Item& item = view->items[0];
  ASSERT_EQ(item.outputs.size(), 1u);
  const std::byte* const base = item.Find(Role::kPool, 0)->bytes[0].data() - 7;
  EXPECT_EQ(item.outputs[0].place.data, base + 101);
  EXPECT_EQ(view->response_bytes, 0);
  EXPECT_EQ(view->bound.shared_bytes, 2 * 3 * 16);  // not the whole pools
  EXPECT_EQ(view->bound.held.size(), 2u);
}

TEST_F(MoveKeysTest, APoolThatIsWrittenOverlapsNoOther) {
  v1::MoveKeysRequest request = RequestOf(MoveMode::kCopyOnWrite);
  Lease(1, 0, &request);
  Lease(0, kPoolBytes - 1, &request);
  EXPECT_THAT(View(request),
              StatusIs(kInvalid, HasSubstr("item.pools[1]: overlaps item.pools[0]")));
  request.mutable_item()->mutable_pools(0)->mutable_region()->set_offset_bytes(kPoolBytes);
  EXPECT_THAT(View(request), IsOk());
  // Both are only read.
  request = RequestOf(MoveMode::kCompare);
  Lease(1, 0, &request);
  Lease(0, 0, &request);
  EXPECT_THAT(View(request), IsOk());
}

TEST_F(MoveKeysTest, ErrorsNameTheField) {
  v1::MoveKeysRequest request = RequestOf(MoveMode::kCopyOnWrite);
  request.mutable_raw(1)->pop_back();
  EXPECT_THAT(View(request), StatusIs(kInvalid, HasSubstr("item.pools[1]: raw[1] has 63 bytes; "
                                                          "must have 64 for size_bytes")));
  request.mutable_raw()->RemoveLast();
  EXPECT_THAT(View(request), StatusIs(kInvalid, HasSubstr("raw: 1 entries; must be 2")));
  request = RequestOf(MoveMode::kCopyOnWrite);
  Lease(1, 1000 - kPoolBytes + 1, &request);
  EXPECT_THAT(
      View(request),
      StatusIs(kInvalid, HasSubstr("item.pools[1].region.offset_bytes: 64 bytes from 937")));
  request.mutable_item()->mutable_pools(1)->mutable_region()->set_region("no such lease");
  EXPECT_THAT(View(request),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("item.pools[1].region.region")));
  request = RequestOf(MoveMode::kCopyOnWrite);
  request.mutable_item()->mutable_pins()->set_backend("cuda");
  EXPECT_THAT(View(request), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("item.pins.backend: 'cuda' does not run here")));
  request.mutable_item()->mutable_pins()->set_spec_fingerprint("abc");
  EXPECT_THAT(View(request),
              StatusIs(kInvalid, HasSubstr("item.pins.spec_fingerprint: set; must")));
  request.mutable_item()->clear_pins();
  request.mutable_item()->mutable_layers(0)->mutable_place()->set_pool(2);
  EXPECT_THAT(View(request), StatusIs(kInvalid, HasSubstr("item.layers[0].place.pool: 2")));
}

TEST_F(MoveKeysTest, PoolsThatComeBackMustFitTheAnswer) {
  const v1::MoveKeysRequest request = RequestOf(MoveMode::kCopyOnWrite);
  EXPECT_THAT(View(request, 64), StatusIs(kExhausted, HasSubstr("the response is too large")));
  // Differences too: each layer of a comparison has one.
  v1::MoveKeysRequest compare = RequestOf(MoveMode::kCompare);
  for (int i = 0; i < 200; ++i) {
    *compare.mutable_item()->add_layers() = compare.item().layers(0);
  }
  EXPECT_THAT(View(compare, 16 << 10),
              StatusIs(kExhausted, HasSubstr("the response is too large")));
  EXPECT_THAT(View(compare, 64 << 10), IsOk());
}

// A batch of these requests.
v1::BatchMoveKeysRequest BatchOfMoves(const std::vector<v1::MoveKeysRequest>& requests) {
  v1::BatchMoveKeysRequest batch;
  for (const v1::MoveKeysRequest& request : requests) {
    *batch.add_items() = request.item();
    batch.mutable_raw()->MergeFrom(request.raw());
  }
  return batch;
}

TEST_F(MoveKeysTest, ABadItemOfABatchKeepsItsErrorAndItsRawEntries) {
  v1::MoveKeysRequest bad = RequestOf(MoveMode::kCopyOnWrite);
  bad.mutable_item()->mutable_layers(0)->set_spec(7);
  const auto view =
      View(BatchOfMoves({RequestOf(MoveMode::kMove), bad, RequestOf(MoveMode::kCopyOnWrite)}));
  ASSERT_THAT(view, IsOk());
  EXPECT_THAT(view->items[0].status, IsOk());
  EXPECT_THAT(view->items[1].status, StatusIs(kInvalid, HasSubstr("items[1].layers[0].spec: 7")));
  ASSERT_THAT(view->items[2].status, IsOk());
  EXPECT_EQ(static_cast<char>(view->items[2].Find(Role::kPool, 1)->bytes[0][0]), 'b');
  EXPECT_EQ(view->response_bytes, 2 * kPoolBytes);
}

TEST_F(MoveKeysTest, ItemsOfABatchShareSourcesButNothingThatOneWrites) {
  v1::MoveKeysRequest first = RequestOf(MoveMode::kCopyOnWrite);
  Lease(1, 100, &first);
  Lease(0, 0, &first);
  v1::MoveKeysRequest second = RequestOf(MoveMode::kCopyOnWrite);
  Lease(1, 200, &second);
  Lease(0, 0, &second);
  EXPECT_THAT(View(BatchOfMoves({first, second})), IsOk());
  second.mutable_item()->mutable_pools(1)->mutable_region()->set_offset_bytes(100 + kPoolBytes - 1);
  EXPECT_THAT(View(BatchOfMoves({first, second})),
              StatusIs(kInvalid, HasSubstr("items[1].pools[1]: overlaps items[0].pools[1]")));
  second.mutable_item()->mutable_pools(1)->mutable_region()->set_offset_bytes(0);
  second.mutable_item()->mutable_pools(0)->mutable_region()->set_offset_bytes(100);
  EXPECT_THAT(View(BatchOfMoves({first, second})), StatusIs(kInvalid, HasSubstr("overlaps")));
}

// A few bytes of a run stand for many tokens, so they are counted before they are listed.
TEST_F(MoveKeysTest, TheTokensOfABatchAreLimitedTogether) {
  v1::MoveKeysRequest request = RequestOf(MoveMode::kCompare);
  request.mutable_item()->mutable_groups(0)->mutable_runs(0)->set_count(1 << 19);
  auto view = View(BatchOfMoves({request, request}));
  ASSERT_THAT(view, IsOk());
  EXPECT_THAT(view->items[1].status, StatusIs(kInvalid, HasSubstr("items[1].groups[0].runs[0]")));
  request.mutable_item()->mutable_groups(0)->mutable_slots()->add_slots(1);
  EXPECT_THAT(View(BatchOfMoves({request, request})),
              StatusIs(kExhausted, HasSubstr("items: more than 1048576 tokens together")));
  v1::MoveKeysRequest negative = request;
  negative.mutable_item()->mutable_groups(0)->mutable_runs(0)->set_count(-(1 << 19));
  EXPECT_THAT(View(BatchOfMoves({negative, request, request})),
              StatusIs(kExhausted, HasSubstr("items: more than 1048576 tokens together")));
  request.mutable_item()->mutable_groups(0)->mutable_runs(0)->set_count(INT64_MAX);
  EXPECT_THAT(View(BatchOfMoves({request, request})),
              StatusIs(kExhausted, HasSubstr("items: more")));
}

// `method` with the message; the answer.
template <typename Response = v1::MoveKeysResponse>
Response Answer(TestServer& server, const google::protobuf::MessageLite& request,
                const std::string& method = "MoveKeys") {
  PendingCall call;
  server.Start(method, request.SerializeAsString(), &call);
  call.done.WaitForNotification();
  EXPECT_TRUE(call.status.ok()) << call.status.error_message();
  grpc::Slice slice;
  EXPECT_TRUE(call.response.DumpToSingleSlice(&slice).ok());
  Response response;
  EXPECT_TRUE(response.ParseFromArray(slice.begin(), static_cast<int>(slice.size())));
  return response;
}

TEST(MoveKeysServiceTest, PoolsThatAreWrittenComeBackAsAWhole) {
  TestServer server;
  const v1::MoveKeysResponse response = Answer(server, RequestOf(MoveMode::kCopyOnWrite));
  const v1::MoveKeysResult& result = response.result();
  EXPECT_THAT(result.inline_pools(), ElementsAre(1));
  EXPECT_THAT(response.raw(), ElementsAre(std::string(kPoolBytes, 'b')));
  EXPECT_EQ(result.tokens(), 3);
  EXPECT_EQ(result.moved_bytes(), 3 * 16);
  EXPECT_EQ(result.info().backend(), "fake");
  EXPECT_EQ(result.info().spec_fingerprint(), "");
  ASSERT_EQ(result.specs_size(), 1);
  EXPECT_EQ(result.specs(0).fingerprint().size(), 32u);
  EXPECT_EQ(result.specs(0).from_fingerprint(), result.specs(0).fingerprint());
  EXPECT_THAT(Answer(server, RequestOf(MoveMode::kMove)).result().inline_pools(), ElementsAre(0));
}

TEST(MoveKeysServiceTest, AComparisonAnswersWithDifferencesAndNoBytes) {
  TestServer server;
  v1::MoveKeysRequest request = RequestOf(MoveMode::kCompare);
  *request.mutable_item()->add_layers() = request.item().layers(0);
  const v1::MoveKeysResponse response = Answer(server, request);
  EXPECT_EQ(response.result().differences_size(), 2);
  EXPECT_THAT(response.result().inline_pools(), IsEmpty());
  EXPECT_THAT(response.raw(), IsEmpty());
}

TEST(MoveKeysServiceTest, EveryPoolMayBeInTheMessage) {
  TestServer server;
  v1::MoveKeysRequest request = RequestOf(MoveMode::kCopyOnWrite);
  while (request.raw_size() < 1024) {
    request.mutable_item()->add_pools()->set_size_bytes(1);
    request.add_raw("x");
  }
  EXPECT_EQ(Answer(server, request).raw_size(), 1);
  request.add_raw("x");
  const grpc::Status status = server.Call("MoveKeys", request.SerializeAsString());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("raw: too many entries"));
}

TEST(MoveKeysServiceTest, AMessageWithoutAnItemIsRefused) {
  TestServer server;
  const grpc::Status status = server.Call("MoveKeys", "");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "item: not set; must be given");
}

TEST(MoveKeysServiceTest, ABatchAnswersItemByItem) {
  TestServer server;
  v1::MoveKeysRequest bad = RequestOf(MoveMode::kCopyOnWrite);
  bad.mutable_item()->set_mode(static_cast<v1::MoveMode>(9));
  const auto response = Answer<v1::BatchMoveKeysResponse>(
      server,
      BatchOfMoves({RequestOf(MoveMode::kCopyOnWrite), bad, RequestOf(MoveMode::kCompare),
                    RequestOf(MoveMode::kMove)}),
      "BatchMoveKeys");
  ASSERT_EQ(response.results_size(), 4);
  EXPECT_THAT(response.results(0).inline_pools(), ElementsAre(1));
  EXPECT_EQ(response.results(0).tokens(), 3);
  EXPECT_EQ(response.results(0).info().backend(), "fake");
  EXPECT_EQ(response.results(1).status().code(), 3);
  EXPECT_THAT(response.results(1).status().message(), HasSubstr("items[1].mode"));
  EXPECT_EQ(response.results(1).specs_size(), 0);
  EXPECT_EQ(response.results(2).differences_size(), 1);
  EXPECT_THAT(response.results(3).inline_pools(), ElementsAre(0));
  EXPECT_THAT(response.raw(),
              ElementsAre(std::string(kPoolBytes, 'b'), std::string(kPoolBytes, 'a')));
}

TEST(MoveKeysServiceTest, AnErrorOfOneItemLeavesTheStreamOpen) {
  TestServer server;
  const auto stub = v1::PositionEmbeddingService::NewStub(server.channel());
  grpc::ClientContext context;
  const auto stream = stub->StreamMoveKeys(&context);
  const auto ask = [&](int64_t id, const v1::MoveKeysRequest& request) {
    v1::StreamMoveKeysRequest message;
    message.set_id(id);
    if (request.has_item()) *message.mutable_item() = request.item();
    *message.mutable_raw() = request.raw();
    EXPECT_TRUE(stream->Write(message));
    v1::StreamMoveKeysResponse answer;
    EXPECT_TRUE(stream->Read(&answer));
    EXPECT_EQ(answer.id(), id);
    return answer;
  };
  EXPECT_THAT(ask(1, {}).result().status().message(), "item: not set; must be given");
  v1::MoveKeysRequest request = RequestOf(MoveMode::kCopyOnWrite);
  request.mutable_item()->clear_layouts();
  EXPECT_THAT(ask(1, request).result().status().message(), HasSubstr("item.layouts: 0 entries"));
  // As many pools as a call may have.
  request = RequestOf(MoveMode::kCopyOnWrite);
  while (request.raw_size() < 1024) {
    request.mutable_item()->add_pools()->set_size_bytes(1);
    request.add_raw("x");
  }
  const v1::StreamMoveKeysResponse answer = ask(7, request);
  EXPECT_EQ(answer.result().status().code(), 0);
  EXPECT_THAT(answer.result().inline_pools(), ElementsAre(1));
  EXPECT_THAT(answer.raw(), ElementsAre(std::string(kPoolBytes, 'b')));
  EXPECT_EQ(ask(8, RequestOf(MoveMode::kCompare)).result().differences_size(), 1);
  stream->WritesDone();
  v1::StreamMoveKeysResponse none;
  EXPECT_FALSE(stream->Read(&none));
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace phasor::rpc
