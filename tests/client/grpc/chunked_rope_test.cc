// SPDX-License-Identifier: Apache-2.0
// Tests how a rotation is cut, sent and put together, with a server that echoes. client_stream_test
// compares the numbers of a real server.
#include "client/grpc/chunked_rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "client/common/runs.h"
#include "tests/client/grpc/stream_service.h"
#include "tests/support/status_matchers.h"

namespace phasor::client_internal {
namespace {

using ::phasor::testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kAllTokens = 1000;

class ChunkedRopeTest : public ::testing::Test {
 protected:
  ChunkedRopeTest() { std::iota(x_.begin(), x_.end(), 1.0F); }

  absl::StatusOr<RunInfo> Rotate(RopeLayout layout, ChunkOptions options) {
    const std::vector<int64_t> shape = layout == RopeLayout::kTokensHeads
                                           ? std::vector<int64_t>{2, kAllTokens, 3, 8}
                                           : std::vector<int64_t>{2, 3, kAllTokens, 8};
    const RopeCall call{.spec = {.preset = "rope-half-split"},
                        .positions = IntegerRange{0, 1, kAllTokens},
                        .tensors = {{View(x_, shape), MutableView(y_, shape)}},
                        .layout = layout};
    return RopeInChunks(service_.channel(), *CutBatch(call), options, {});
  }

  StreamService service_;
  std::vector<float> x_ = std::vector<float>(2 * kAllTokens * 3 * 8);
  std::vector<float> y_ = std::vector<float>(x_.size());
};

TEST_F(ChunkedRopeTest, EveryTokenComesToItsPlaceInEitherLayout) {
  for (const RopeLayout layout : {RopeLayout::kTokensHeads, RopeLayout::kHeadsTokens}) {
    for (const int64_t bytes : {int64_t{1}, int64_t{7 * 96 + 5}, int64_t{1} << 30}) {
      std::fill(y_.begin(), y_.end(), 0.0F);
      int64_t last = 0;
      const auto info =
          Rotate(layout, {.chunk_bytes = bytes, .progress = [&](int64_t done, int64_t all) {
                            EXPECT_GT(done, last);
                            EXPECT_EQ(all, 2 * kAllTokens);
                            last = done;
                          }});
      ASSERT_TRUE(info.ok()) << info.status();
      EXPECT_EQ(last, 2 * kAllTokens);
      EXPECT_TRUE(x_ == y_) << "chunks of " << bytes;
    }
  }
}

TEST_F(ChunkedRopeTest, TheFirstErrorOfAnItemIsTheCalls) {
  service_.spoil = [](v1::StreamApplyRoPEResponse& response) {
    if (response.chunk().first_token() < 500) return grpc::Status::OK;
    response.mutable_result()->mutable_status()->set_code(8);
    response.mutable_result()->mutable_status()->set_message("too much");
    return grpc::Status::OK;
  };
  EXPECT_THAT(Rotate(RopeLayout::kTokensHeads, {.chunk_bytes = 960}),
              StatusIs(absl::StatusCode::kResourceExhausted, "too much"));
}

TEST_F(ChunkedRopeTest, AnExceptionOfTheProgressFunctionReachesTheCaller) {
  const auto progress = [](int64_t, int64_t) { throw std::runtime_error("enough"); };
  EXPECT_THAT(
      [&] { (void)Rotate(RopeLayout::kTokensHeads, {.chunk_bytes = 1, .progress = progress}); },
      ::testing::ThrowsMessage<std::runtime_error>("enough"));
}

TEST_F(ChunkedRopeTest, AStreamThatEndsEarlyIsAnError) {
  service_.spoil = [](v1::StreamApplyRoPEResponse& response) {
    return response.chunk().first_token() < 500
               ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  };
  EXPECT_THAT(Rotate(RopeLayout::kTokensHeads, {.chunk_bytes = 960}),
              StatusIs(absl::StatusCode::kUnavailable, "draining"));
}

TEST_F(ChunkedRopeTest, AnAnswerThatDoesNotFitIsInternal) {
  service_.spoil = [](v1::StreamApplyRoPEResponse& response) {
    if (response.has_chunk()) response.mutable_chunk()->set_first_token(3);
    return grpc::Status::OK;
  };
  EXPECT_THAT(Rotate(RopeLayout::kTokensHeads, {.chunk_bytes = 960}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("was not asked for")));
}

}  // namespace
}  // namespace phasor::client_internal
