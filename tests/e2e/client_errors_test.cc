// SPDX-License-Identifier: Apache-2.0
// Tests that TCP and in process give the same errors, code and message, and errors that only a
// server has.
#include <functional>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "tests/e2e/client_server.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;

class ClientErrorsTest : public ClientServerTest {};

EncodeCall GoodEncode() {
  return {.spec = {.preset = "transformer", .dim = 8}, .positions = {1, 2}};
}

TEST_F(ClientErrorsTest, BadEncodesFailAlike) {
  Start();
  const std::vector<float> add(16);
  const std::vector<Float16> half(2);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::function<void(EncodeCall&)>> faults = {
      [](auto& c) { c.spec.preset = "no-such-preset"; },
      [](auto& c) { c.spec.preset = ""; },
      [](auto& c) { c.spec.dim = 0; },
      [](auto& c) { c.spec.dim = -2; },
      [](auto& c) { c.spec.dim = 7; },
      [](auto& c) { c.spec.dim = int64_t{1} << 40; },
      [](auto& c) { c.spec.dim.reset(); },
      [](auto& c) { c.spec.rope_theta = 0; },
      [=](auto& c) { c.spec.rope_theta = nan; },
      [=](auto& c) { c.spec.position_scale = infinity; },
      [](auto& c) { c.spec.axes = 9; },
      [](auto& c) { c.spec.encoder = "mine"; },
      [](auto& c) { c.spec = {.encoder = "mine"}; },
      [](auto& c) { c.spec = {.config_json = "{}"}; },
      [](auto& c) { c.spec.preset = "transformer-literal", c.spec.precision = Precision::kParity; },
      [](auto& c) { c.spec.preset = "rope-half-split"; },
      [=](auto& c) {
        c.positions = {1.0, nan};
      },
      [](auto& c) {
        c.positions = {0x1p63, 0.0};
      },
      [](auto& c) { c.positions = IntegerRange{.count = -1}; },
      [](auto& c) { c.positions = IntegerRange{.start = INT64_MAX, .count = 2}; },
      [](auto& c) { c.positions = IntegerRange{.count = int64_t{1} << 41}; },
      [=](auto& c) {
        c.positions = RealRange{nan, 1, 2};
      },
      [](auto& c) { c.positions = PositionGrid{}; },
      [](auto& c) {
        c.positions = PositionGrid{{IntegerRange{.count = 2}, IntegerRange{}}};
      },
      [](auto& c) {
        c.positions = RaggedPositions{{2, -1}, {}};
      },
      [](auto& c) {
        c.positions = RaggedPositions{{2, 1}, {5}};
      },
      [&](auto& c) { c.positions = View(half, {2}); },
      [&](auto& c) {
        c.positions = View(add, {2, 2, 2, 2});
      },
      [&](auto& c) { c.positions = View(add, {-1}); },
      [](auto& c) { c.output_dtype = Dtype::kInt32; },
      [](auto& c) { c.output_dtype = Dtype::kFloat8E4M3; },
      [&](auto& c) {
        c.add_to = View(add, {1, 16});
      },
      [&](auto& c) {
        c.add_to = View(add, {2, 8}, {4, 1});
      },
      [&](auto& c) {
        c.add_to = View(add, {2, 8}, {8});
      },
      [&](auto& c) {
        c.add_to = View(add, {2, 9});
      },
      [&](auto& c) {
        c.add_to = View(add, {2, 8}), c.output_dtype = Dtype::kFloat64;
      },
      [&](auto& c) {
        c.add_to = View(add, {2, 8}), c.embedding_scale = nan;
      },
      [](auto& c) { c.embedding_scale = 2; },
      [](auto& c) { c.pins.spec_fingerprint = "0"; },
      [](auto& c) { c.pins.numerics_version = 99; },
      [](auto& c) { c.pins.backend = "cuda"; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    EncodeCall call = GoodEncode();
    faults[i](call);
    const absl::Status here = here_.Encode(call).status();
    EXPECT_FALSE(here.ok()) << i;
    EXPECT_EQ(tcp_.Encode(call).status(), here) << i;
  }
}

TEST_F(ClientErrorsTest, BadRotationsFailAlikeAndTouchNothing) {
  Start();
  std::vector<float> q(2 * 3 * 8, 5.0f);
  const std::vector<std::function<void(RopeCall&)>> faults = {
      [](auto& c) { c.spec.preset = "transformer"; },
      [](auto& c) { c.spec.rotary_dim = 7; },
      [](auto& c) { c.spec.rotary_dim = 16; },
      [](auto& c) { c.spec.rotary_begin = -2; },
      [](auto& c) { c.spec.partial_rotary_factor = 1.5; },
      [](auto& c) { c.spec.head_dim = 16; },
      [](auto& c) { c.positions = {1}; },
      [](auto& c) {
        c.positions = {1, 2, 3};
      },
      [](auto& c) { c.tensors.clear(); },
      [&](auto& c) {
        c.tensors = {MutableView(q, {6, 8})};
      },
      [&](auto& c) {
        c.tensors = {MutableView(q, {2, 3, 8}, {8, 8, 1})};
      },
      [&](auto& c) {
        c.tensors = {MutableView(q, {2, 3, 8}, {24, 8, 2})};
      },
      [&](auto& c) {
        c.tensors = {MutableView(q, {2, 0, 8})};
      },
      [](auto& c) { c.direction = Direction::kDelta; },
      [](auto& c) {
        c.from_positions = PositionList{1, 2};
      },
      [](auto& c) { c.from_spec = Spec{}; },
      [](auto& c) { c.layout = RopeLayout::kHeadsTokens; },
      [](auto& c) { c.pins.spec_fingerprint = "0"; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    RopeCall call{.spec = {.preset = "rope-half-split"},
                  .positions = {1, 2},
                  .tensors = {MutableView(q, {2, 3, 8})}};
    faults[i](call);
    const absl::Status here = here_.ApplyRoPE(call).status();
    EXPECT_FALSE(here.ok()) << i;
    EXPECT_EQ(tcp_.ApplyRoPE(call).status(), here) << i;
    EXPECT_THAT(q, ::testing::Each(5.0f)) << i;
  }
}

TEST_F(ClientErrorsTest, BadSpecsResolveAlike) {
  Start();
  for (const Spec& spec : {Spec{}, Spec{.preset = "nope"}, Spec{.preset = "transformer"},
                           Spec{.preset = "transformer", .dim = 3},
                           Spec{.preset = "transformer", .encoder = "mine", .dim = 4}}) {
    const absl::Status here = here_.ResolveSpec(spec).status();
    EXPECT_FALSE(here.ok());
    EXPECT_EQ(tcp_.ResolveSpec(spec).status(), here);
  }
  const parity::Comparison empty{.context_length = 0};
  const absl::Status here = here_.ResolveSpec({.preset = "llama-2"}, empty).status();
  EXPECT_EQ(here.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tcp_.ResolveSpec({.preset = "llama-2"}, empty).status(), here);
}

TEST_F(ClientErrorsTest, ServerLimitsAreResourceExhausted) {
  Start({.max_message_bytes = 1 << 20, .max_batch_items = 2});
  std::vector<float> big(1 << 19);
  const absl::Status status =
      tcp_.ApplyRoPE({.preset = "rope-half-split"}, IntegerRange{.count = 1 << 12},
                     {MutableView(big, {1 << 12, 1, 128})})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  const absl::Status response =
      tcp_.Encode({.preset = "transformer", .dim = 128}, IntegerRange{.count = 1 << 20}).status();
  EXPECT_EQ(response.code(), absl::StatusCode::kResourceExhausted) << response;
  const absl::Status items = tcp_.BatchEncode(std::vector<EncodeCall>(3, GoodEncode())).status();
  EXPECT_EQ(items.code(), absl::StatusCode::kResourceExhausted) << items;
}

TEST_F(ClientErrorsTest, StoppedServersAreUnavailable) {
  Start();
  ASSERT_TRUE(tcp_.CheckHealth().ok());
  server_->Shutdown();
  server_.reset();
  const absl::Status status = tcp_.Encode(GoodEncode()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace phasor
