// SPDX-License-Identifier: Apache-2.0
// Tests calls of the target "inproc:" on dense, strided and shared tensors.
#include "client/inproc/inproc_connection.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace phasor::client_internal {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr float kPrinted = 1e-6f;  // known values have six digits

Client Inproc(const ClientOptions& options = {}) {
  auto connection = MakeInprocConnection(options);
  EXPECT_TRUE(connection.ok()) << connection.status();
  return Client(*connection);
}

std::vector<float> Floats(absl::Span<const float> span) { return {span.begin(), span.end()}; }

TEST(InprocConnectionTest, EncodesTheTransformersExample) {
  auto rows = Inproc().Encode({.preset = "transformer", .dim = 4}, {2});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(Floats(rows->row(0)),
              Pointwise(FloatNear(kPrinted), {0.909297f, -0.416147f, 0.019999f, 0.999800f}));
  EXPECT_EQ(rows->info().spec_fingerprint.size(), 32u);
  EXPECT_EQ(rows->info().numerics_version, kNumericsVersion);
}

TEST(InprocConnectionTest, RotatesTheExampleVectorInPlace) {
  const std::vector<float> x = {1, 2, 3, 4};
  std::vector<float> y = x;
  const Client client = Inproc();
  auto info = client.ApplyRoPE({.preset = "rope-interleaved"}, {2}, {MutableView(y, {1, 1, 4})});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_THAT(y, Pointwise(FloatNear(kPrinted), {-2.234742f, 0.077004f, 2.919405f, 4.059196f}));
  info = client.ApplyRoPE({.preset = "rope-half-split"}, {2},
                          {{View(x, {1, 1, 4}), MutableView(y, {1, 1, 4})}});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_THAT(y, Pointwise(FloatNear(kPrinted), {-3.144039f, 1.919605f, -0.339143f, 4.039197f}));
}

TEST(InprocConnectionTest, MovesKeysWhereTheyLieAndComparesThem) {
  std::vector<float> keys(4 * 8);
  std::iota(keys.begin(), keys.end(), 1.0f);
  std::vector<float> expected(keys.begin() + 16, keys.begin() + 24);
  const Client client = Inproc();
  RopeCall rotation{.spec = {.preset = "rope-half-split"},
                    .positions = {905},
                    .tensors = {MutableView(expected, {1, 1, 8})},
                    .direction = Direction::kDelta};
  rotation.from_positions = PositionList{5};
  ASSERT_TRUE(client.ApplyRoPE(rotation).ok());
  const std::vector<float> before = keys;
  MoveCall call;
  call.pools = {{reinterpret_cast<std::byte*>(keys.data()), keys.size() * sizeof(float)}};
  call.layouts = {{.code = KeyCode::kFloat32, .pages = 4, .heads = 1, .head_dim = 8}};
  call.specs = {{.spec = rotation.spec}};
  call.layers = {{.spec = 0}};
  call.groups = {{.runs = {{.block_table = {2}, .count = 1, .from = 5, .to = 905}}}};
  call.groups[0].runs[0].to_block_table = {1};
  const auto moved = client.MoveKeys(call);
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(moved->tokens, 1);
  EXPECT_EQ(moved->info.backend, "cpu");
  EXPECT_EQ(moved->specs[0].fingerprint.size(), 32u);
  EXPECT_EQ(std::vector<float>(keys.begin() + 8, keys.begin() + 16), expected);
  std::copy(before.begin() + 8, before.begin() + 16, keys.begin() + 8);
  EXPECT_EQ(keys, before) << "elsewhere";
  call.mode = MoveMode::kCompare;
  const auto compared = client.MoveKeys(call);
  ASSERT_TRUE(compared.ok()) << compared.status();
  ASSERT_EQ(compared->differences.size(), 1u);
  EXPECT_EQ(compared->differences[0].first_bad_slot, 1);
  EXPECT_EQ(keys, before);
}

TEST(InprocConnectionTest, WritesATableIntoStridedMemory) {
  const Client client = Inproc();
  EncodeCall call = {.spec = {.preset = "rope-half-split", .head_dim = 6},
                     .positions = {0, 5},
                     .form = EncodeOutput::kCosSin};
  const auto dense = client.Encode(call);
  ASSERT_TRUE(dense.ok()) << dense.status();
  ASSERT_EQ(dense->output.shape, (std::vector<int64_t>{2, 2, 3}));
  const auto* want = reinterpret_cast<const float*>(dense->bytes.data());
  for (const auto& [row, half] : {std::pair{10, 3}, std::pair{10, 4}}) {
    std::vector<float> wide(20, 7.0f);
    call.output = MutableView(wide, {2, 2, 3}, {row, half, 1});
    const auto result = client.Encode(call);
    ASSERT_TRUE(result.ok()) << result.status();
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(wide[i / 6 * row + i / 3 % 2 * half + i % 3], want[i]) << i;
    }
    EXPECT_EQ(std::count(wide.begin(), wide.end(), 7.0f), 8);
  }
}

TEST(InprocConnectionTest, WritesRowsIntoAWiderTensor) {
  const Client client = Inproc();
  const Spec spec = {.preset = "transformer", .dim = 4};
  auto rows = client.Encode(spec, {0, 1, 2});
  std::vector<float> wide(3 * 6, 7.0f);
  auto info = client.Encode(spec, {0, 1, 2}, MutableView(wide, {3, 4}, {6, 1}));
  ASSERT_TRUE(info.ok()) << info.status();
  for (int t = 0; t < 3; ++t) {
    EXPECT_EQ(std::memcmp(&wide[t * 6], rows->row(t).data(), 16), 0);
    EXPECT_EQ(wide[t * 6 + 4], 7.0f);
  }
}

TEST(InprocConnectionTest, AddsToTheCallersEmbedding) {
  const Client client = Inproc();
  std::vector<float> embedding = {1, 2, 3, 4};
  EncodeCall call{.spec = {.preset = "transformer", .dim = 4}, .positions = {2}};
  call.add_to = View(embedding, {1, 4});
  call.embedding_scale = 2;
  call.output = MutableView(embedding, {1, 4});  // its own place
  auto result = client.Encode(call);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->bytes.size(), 0);
  EXPECT_THAT(embedding, Pointwise(FloatNear(4e-6f), {2.909297f, 3.583853f, 6.019999f, 8.9998f}));
}

TEST(InprocConnectionTest, StridedHeadsRotateWithoutTouchingTheirNeighbours) {
  // One fused [tokens, 3 * 4] row of q, k, v; only k turns.
  std::vector<float> fused(2 * 12);
  std::iota(fused.begin(), fused.end(), 1.0f);
  std::vector<float> k = {fused[4],  fused[5],  fused[6],  fused[7],
                          fused[16], fused[17], fused[18], fused[19]};
  const std::vector<float> before = fused;
  const Client client = Inproc();
  const Spec spec = {.preset = "rope-half-split"};
  MutableTensorView view = MutableView(fused, {2, 1, 4}, {12, 4, 1});
  view.data += 4 * sizeof(float);
  view.bytes -= 4 * sizeof(float);
  ASSERT_TRUE(client.ApplyRoPE(spec, {5, 6}, {view}).ok());
  ASSERT_TRUE(client.ApplyRoPE(spec, {5, 6}, {MutableView(k, {2, 1, 4})}).ok());
  for (size_t i = 0; i < fused.size(); ++i) {
    const size_t lane = i % 12;
    const bool in_k = lane >= 4 && lane < 8;
    EXPECT_EQ(fused[i], in_k ? k[i / 12 * 4 + lane - 4] : before[i]) << i;
  }
}

TEST(InprocConnectionTest, StridedOutputTakesDenseInput) {
  std::vector<float> x(8);
  std::iota(x.begin(), x.end(), 1.0f);
  std::vector<float> dense(8);
  std::vector<float> wide(2 * 10, 7.0f);
  const Client client = Inproc();
  const Spec spec = {.preset = "rope-interleaved"};
  ASSERT_TRUE(
      client.ApplyRoPE(spec, {3, 4}, {{View(x, {2, 1, 4}), MutableView(dense, {2, 1, 4})}}).ok());
  ASSERT_TRUE(
      client
          .ApplyRoPE(spec, {3, 4}, {{View(x, {2, 1, 4}), MutableView(wide, {2, 1, 4}, {10, 4, 1})}})
          .ok());
  EXPECT_EQ(std::memcmp(&wide[0], &dense[0], 16), 0);
  EXPECT_EQ(std::memcmp(&wide[10], &dense[4], 16), 0);
  EXPECT_EQ(wide[4], 7.0f);
}

TEST(InprocConnectionTest, MovedKeysEqualKeysRotatedThere) {
  std::vector<double> moved = {1, 2, 3, 4}, there = moved;
  const Client client = Inproc();
  const Spec spec = {.preset = "rope-half-split"};
  RopeCall call{.spec = spec, .positions = {1000}, .tensors = {MutableView(moved, {1, 1, 4})}};
  call.direction = Direction::kDelta;
  call.from_positions = PositionList{1000};
  ASSERT_TRUE(client.ApplyRoPE(call).ok());
  EXPECT_THAT(moved, ElementsAre(1, 2, 3, 4));  // a delta of nothing is exact
  call.from_positions = PositionList{0};
  ASSERT_TRUE(client.ApplyRoPE(call).ok());
  ASSERT_TRUE(client.ApplyRoPE(spec, {1000}, {MutableView(there, {1, 1, 4})}).ok());
  EXPECT_EQ(moved, there);
}

TEST(InprocConnectionTest, BatchItemsFailAlone) {
  std::vector<EncodeCall> calls(3);
  calls[0] = {.spec = {.preset = "transformer", .dim = 4}, .positions = {1}};
  calls[1] = {.spec = {.preset = "no-such-preset", .dim = 4}, .positions = {1}};
  calls[2] = {.spec = {.preset = "transformer", .dim = 4}, .positions = {2}};
  auto results = Inproc().BatchEncode(calls);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 3u);
  EXPECT_TRUE((*results)[0].ok());
  EXPECT_EQ((*results)[1].status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string((*results)[1].status().message()), HasSubstr("items[1].spec"));
  EXPECT_TRUE((*results)[2].ok());
}

TEST(InprocConnectionTest, NothingIsWrittenWhenAPositionIsBad) {
  std::vector<float> y = {1, 2, 3, 4};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto info = Inproc().ApplyRoPE({.preset = "rope-half-split"}, {nan}, {MutableView(y, {1, 1, 4})});
  EXPECT_EQ(info.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(y, ElementsAre(1, 2, 3, 4));
}

TEST(InprocConnectionTest, ZeroTokensAreEmpty) {
  const Client client = Inproc();
  auto rows = client.Encode({.preset = "transformer", .dim = 4}, {});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->shape(), ElementsAre(0, 4));
  EXPECT_TRUE(client.BatchEncode({})->empty());
  std::vector<float> none;
  EXPECT_TRUE(
      client.ApplyRoPE({.preset = "rope-half-split"}, {}, {MutableView(none, {0, 2, 4})}).ok());
}

TEST(InprocConnectionTest, PinsAreChecked) {
  const Client client = Inproc();
  const Spec spec = {.preset = "transformer", .dim = 4};
  const std::string fingerprint = client.Encode(spec, {1})->info().spec_fingerprint;
  EXPECT_TRUE(client.Encode(spec, {1}, {.pins = {.spec_fingerprint = fingerprint}}).ok());
  for (const Pins& pins :
       {Pins{.spec_fingerprint = "0"}, Pins{.numerics_version = 999}, Pins{.backend = "cuda"}}) {
    EXPECT_EQ(client.Encode(spec, {1}, {.pins = pins}).status().code(),
              absl::StatusCode::kFailedPrecondition);
    const auto stream = client.StreamEncode({.pins = pins});
    ASSERT_TRUE(stream->Write(1, {.spec = spec, .positions = {1}}).ok());
    ASSERT_TRUE(
        stream->Write(2, {.spec = spec, .positions = {1}, .pins = {.numerics_version = 1}}).ok());
    EXPECT_EQ(stream->Read()->result.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(stream->Read()->result.ok());
  }
}

TEST(InprocConnectionTest, PastDeadlinesAndCancelledCallsComputeNothing) {
  std::vector<float> y = {1, 2, 3, 4};
  const Client client = Inproc();
  CallOptions late{.deadline = absl::Now() - absl::Seconds(1)};
  CallOptions cancelled{.cancel = CancelToken()};
  cancelled.cancel->Cancel();
  const Spec spec = {.preset = "rope-half-split"};
  EXPECT_EQ(client.ApplyRoPE(spec, {1}, {MutableView(y, {1, 1, 4})}, late).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(client.ApplyRoPE(spec, {1}, {MutableView(y, {1, 1, 4})}, cancelled).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_THAT(y, ElementsAre(1, 2, 3, 4));
}

TEST(InprocConnectionTest, AStreamThatHasEndedIsNotCancelled) {
  const Client client = Inproc();
  for (const bool reads_last : {false, true}) {
    CancelToken token;
    const auto stream = client.StreamEncode({.cancel = token});
    ASSERT_TRUE(
        stream->Write(1, {.spec = {.preset = "transformer", .dim = 4}, .positions = {1}}).ok());
    if (reads_last) stream->WritesDone();
    EXPECT_TRUE(stream->Read()->result.ok());
    if (!reads_last) stream->WritesDone();
    token.Cancel();
    EXPECT_TRUE(stream->Finish().ok());
  }
  CancelToken token;
  const auto open = client.StreamEncode({.cancel = token});
  token.Cancel();
  EXPECT_EQ(open->Finish().code(), absl::StatusCode::kCancelled);
}

TEST(InprocConnectionTest, ResolvedSpecsResolveToThemselves) {
  const Client client = Inproc();
  auto details = client.ResolveSpec({.preset = "rope-half-split", .head_dim = 8});
  ASSERT_TRUE(details.ok()) << details.status();
  ASSERT_EQ(details->pairs.size(), 4u);
  EXPECT_EQ(details->width, 8);
  EXPECT_DOUBLE_EQ(details->pairs[0].inv_freq, 1.0);
  EXPECT_DOUBLE_EQ(details->pairs[1].inv_freq, 0.1);
  auto again = client.ResolveSpec(details->spec);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->spec, details->spec);
  EXPECT_EQ(again->info, details->info);
}

TEST(InprocConnectionTest, TellsWhatItIs) {
  const Client client = Inproc({.inproc_backend = "reference"});
  auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok());
  EXPECT_FALSE(info->version.empty());
  EXPECT_EQ(info->backends.size(), 1u);
  EXPECT_EQ(info->cpu_threads, 1);
  EXPECT_EQ(*client.CheckHealth(), Health::kServing);
  EXPECT_FALSE(client.ListPresets()->empty());
}

TEST(InprocConnectionTest, UnknownBackendsAreNotFound) {
  EXPECT_EQ(MakeInprocConnection({.inproc_backend = "abacus"}).status().code(),
            absl::StatusCode::kNotFound);
}

// One of the calls below: alike in all but one or two things.
struct Variant {
  Spec spec = {.preset = "rope-half-split"};
  PositionList positions = IntegerRange{.start = 7, .count = 2};
  std::vector<int64_t> shape = {2, 3, 4};
  std::vector<int64_t> strides = {};
  bool in_place = false;
  Direction direction = Direction::kForward;
  RopeLayout layout = RopeLayout::kTokensHeads;
  std::optional<PositionList> from_positions = {};
  std::optional<Spec> from_spec = {};
  std::optional<float> inv_scale = {};
  Pins pins = {};
  bool too_little_memory = false;
};

std::vector<Variant> Variants() {
  static const std::vector<int64_t> numbers = {5, 1000000};
  static const std::vector<int64_t> others = {6, 3};
  return {
      {},
      {.positions = IntegerRange{.start = 8, .count = 2}},
      {.positions = View(numbers, {2})},
      {.positions = View(others, {2})},
      {.positions = IntegerRange{.start = 7, .count = 3}},  // too many
      {.positions = std::vector<double>{0.5, std::numeric_limits<double>::quiet_NaN()}},
      {.positions = std::vector<double>{0.5, 2}},
      {.spec = {.preset = "rope-interleaved"}},
      {.spec = {.preset = "rope-half-split", .rope_theta = 500.0}},
      {.spec = {.preset = "no-such-preset"}},
      {.shape = {2, 2, 6}},
      {.shape = {1, 2, 3, 4}},
      {.shape = {2, 3, 4}, .strides = {16, 4, 1}},
      {.shape = {3, 2, 4}, .layout = RopeLayout::kHeadsTokens},
      {.in_place = true},
      {.direction = Direction::kInverse},
      {.direction = Direction::kDelta, .from_positions = IntegerRange{.start = 3, .count = 2}},
      {.from_positions = IntegerRange{.start = 3, .count = 2}},  // not of a move
      {.from_spec = Spec{.preset = "rope-half-split"}},          // likewise
      {.inv_scale = 2.0f},                                       // not of FLOAT8
      {.pins = {.backend = "cuda"}},
      {.too_little_memory = true},
  };
}

// What a call says, and the bytes that it writes.
std::pair<absl::Status, std::vector<float>> RunVariant(const Client& client, const Variant& v) {
  std::vector<float> x(32), y(32);
  std::iota(x.begin(), x.end(), 1.0f);
  MutableTensorView in = MutableView(x, v.shape, v.strides), out = MutableView(y, v.shape);
  if (v.too_little_memory) in.bytes = 4;
  RopeCall call{.spec = v.spec,
                .positions = v.positions,
                .tensors = {v.in_place ? RopeTensor(in) : RopeTensor(in, out)},
                .direction = v.direction,
                .layout = v.layout,
                .from_positions = v.from_positions,
                .from_spec = v.from_spec,
                .pins = v.pins};
  call.tensors[0].inv_scale = v.inv_scale;
  const absl::Status status = client.ApplyRoPE(std::move(call)).status();
  return {status, v.in_place ? x : y};
}

TEST(InprocConnectionTest, ACallDoesNotDependOnTheOnesBeforeIt) {
  const std::vector<Variant> variants = Variants();
  std::vector<std::pair<absl::Status, std::vector<float>>> alone;
  for (const Variant& variant : variants) alone.push_back(RunVariant(Inproc(), variant));
  int succeed = 0;
  for (const auto& [status, bytes] : alone) succeed += status.ok();
  EXPECT_EQ(succeed, 14);
  const Client client = Inproc();
  for (size_t before = 0; before < variants.size(); ++before) {
    for (size_t i = 0; i < variants.size(); ++i) {
      RunVariant(client, variants[before]);
      EXPECT_EQ(RunVariant(client, variants[i]), alone[i]) << before << ", then " << i;
    }
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 200; ++i) {
        const size_t n = (i * (t + 1) + t) % variants.size();
        wrong += RunVariant(client, variants[n]) != alone[n];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(InprocConnectionTest, ThreadsShareAConnection) {
  const Client client = Inproc({.inproc_threads = 2});
  const auto expected = *client.Encode({.preset = "transformer", .dim = 64}, {1, 2, 3});
  std::vector<std::thread> threads;
  std::atomic<int> equal = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 20; ++i) {
        auto other = client.Encode({.preset = "transformer", .dim = 2 + 2 * (i + t)}, {1});
        auto rows = client.Encode({.preset = "transformer", .dim = 64}, {1, 2, 3});
        equal += other.ok() && rows.ok() &&
                 std::memcmp(rows->data(), expected.data(), expected.size() * 4) == 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 80);
}

}  // namespace
}  // namespace phasor::client_internal
