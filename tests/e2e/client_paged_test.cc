// SPDX-License-Identifier: Apache-2.0
// Tests paged caches and FLOAT8 end to end: over TCP with caches in the message, over a Unix socket
// with caches in leased memory, and in process. Compares with a loop that writes rotated rows to
// their slots.

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "tests/e2e/client_server.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using Cells = std::vector<std::byte>;

constexpr int64_t kPages = 9, kPageSize = 4, kKeyDim = 64, kAllTokens = 21, kKeyHeads = 2,
                  kValueHeads = 3;
const Spec kSpec = {.preset = "llama-2", .head_dim = kKeyDim};

Cells RandomHalves(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Cells cells(static_cast<size_t>(count * 2));
  for (int64_t i = 0; i < count; ++i) {  // numbers of moderate size in both 16-bit types
    const auto bits = static_cast<uint16_t>((random() & 0x83FF) | 0x3C00);
    std::memcpy(cells.data() + 2 * i, &bits, 2);
  }
  return cells;
}

MutableTensorView ViewOf(std::byte* data, Dtype dtype, std::vector<int64_t> shape,
                         std::vector<int64_t> strides = {}) {
  const TensorDesc desc{dtype, std::move(shape), std::move(strides)};
  return {desc, data, *SpannedBytes(desc, "x")};
}

std::vector<int64_t> Slots() {
  std::vector<int64_t> slots;
  for (int64_t t = 0; t < kAllTokens; ++t) slots.push_back((t * 5 + 3) % (kPages * kPageSize));
  slots[4] = slots[11] = -1;
  return slots;
}

// What is written, and how.
struct PagedCase {
  Dtype dtype = Dtype::kBFloat16;
  Dtype key_type = Dtype::kBFloat16;
  Dtype value_type = Dtype::kBFloat16;
  RopeLayout layout = RopeLayout::kTokensHeads;

  std::vector<int64_t> Shape(int64_t heads) const {
    if (layout == RopeLayout::kTokensHeads) return {kAllTokens, heads, kKeyDim};
    return {heads, kAllTokens, kKeyDim};
  }
  // Element (t, h, 0).
  int64_t At(int64_t heads, int64_t t, int64_t h) const {
    return (layout == RopeLayout::kTokensHeads ? t * heads + h : h * kAllTokens + t) * kKeyDim;
  }
};

class ClientPagedTest : public ClientServerTest {
 protected:
  void SetUp() override { Start(Options()); }

  // Rows of a dense call of the same type, which knows nothing of pages. Values are turned by 0.
  Cells Rows(const PagedCase& c, const Cells& x, int64_t heads, Dtype type, bool values) const {
    Cells y(x.size() / 2 * static_cast<size_t>(SizeOf(type)));
    Cells copy = x;
    RopeTensor tensor(ViewOf(copy.data(), c.dtype, c.Shape(heads)),
                      ViewOf(y.data(), type, c.Shape(heads)));
    if (type != c.dtype) tensor.inv_scale = values ? 3.5f : 0.75f;
    if (values && type == c.dtype) return x;
    RopeCall call{.spec = kSpec, .positions = Positions(), .tensors = {tensor}, .layout = c.layout};
    if (values) call.positions = IntegerRange{.start = 0, .step = 0, .count = kAllTokens};
    const auto info = here_.ApplyRoPE(call);
    EXPECT_TRUE(info.ok()) << info.status();
    return y;
  }
  static PositionList Positions() { return IntegerRange{.start = 100000, .count = kAllTokens}; }

  // cache[slot / page_size][slot % page_size][h][:] = rows[t][h][:], strides in elements.
  static void Model(const PagedCase& c, const Cells& rows, int64_t heads, int64_t size,
                    const std::vector<int64_t>& slots, const std::vector<int64_t>& strides,
                    std::byte* cache) {
    for (int64_t t = 0; t < kAllTokens; ++t) {
      const int64_t slot = slots[static_cast<size_t>(t)];
      if (slot < 0) continue;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at =
            slot / kPageSize * strides[0] + slot % kPageSize * strides[1] + h * strides[2];
        std::memcpy(cache + at * size, rows.data() + c.At(heads, t, h) * size,
                    static_cast<size_t>(kKeyDim * size));
      }
    }
  }

  // Strides of both caches; the value cache begins `value_at` bytes behind the key cache.
  struct CacheLayout {
    std::vector<int64_t> key_strides, value_strides;
    int64_t value_at = 0;
    int64_t bytes = 0;
  };
  static CacheLayout Dense(const PagedCase& c) {
    const int64_t key_bytes = kPages * kPageSize * kKeyHeads * kKeyDim * SizeOf(c.key_type);
    return {DenseStrides({kPages, kPageSize, kKeyHeads, kKeyDim}),
            DenseStrides({kPages, kPageSize, kValueHeads, kKeyDim}), key_bytes,
            key_bytes + kPages * kPageSize * kValueHeads * kKeyDim * SizeOf(c.value_type)};
  }
  // Pages of keys and of values in turns, heads before slots. One type.
  static CacheLayout Interleaved(const PagedCase& c) {
    const int64_t page = (kKeyHeads + kValueHeads) * kPageSize * kKeyDim;
    const std::vector<int64_t> strides = {page, kKeyDim, kPageSize * kKeyDim, 1};
    const int64_t size = SizeOf(c.key_type);
    return {strides, strides, kKeyHeads * kPageSize * kKeyDim * size, kPages * page * size};
  }

  RopeCall CallOn(const PagedCase& c, const CacheLayout& layout, Cells& q, Cells& k, Cells& v,
                  std::vector<int64_t>& slots, std::byte* cache) const {
    RopeCall call{.spec = kSpec, .positions = Positions(), .layout = c.layout};
    call.tensors.emplace_back(ViewOf(q.data(), c.dtype, c.Shape(5)));
    RopeTensor& keys = call.tensors.emplace_back(
        ViewOf(k.data(), c.dtype, c.Shape(kKeyHeads)),
        ViewOf(cache, c.key_type, {kPages, kPageSize, kKeyHeads, kKeyDim}, layout.key_strides));
    PagedWrite& paged = call.paged.emplace();
    paged.key_index = 1;
    paged.values =
        RopeTensor(ViewOf(v.data(), c.dtype, c.Shape(kValueHeads)),
                   ViewOf(cache + layout.value_at, c.value_type,
                          {kPages, kPageSize, kValueHeads, kKeyDim}, layout.value_strides));
    paged.slot_mapping = View(slots, {kAllTokens});
    if (c.key_type != c.dtype) keys.inv_scale = 0.75f;
    if (c.value_type != c.dtype) paged.values.inv_scale = 3.5f;
    return call;
  }

  // Runs a call on `cache`, which holds what `expected` held before the model wrote it.
  void Check(const Client& client, const PagedCase& c, const CacheLayout& layout,
             std::byte* cache) const {
    Cells q = RandomHalves(kAllTokens * 5 * kKeyDim, 1),
          k = RandomHalves(kAllTokens * kKeyHeads * kKeyDim, 2);
    Cells v = RandomHalves(kAllTokens * kValueHeads * kKeyDim, 3);
    std::vector<int64_t> slots = Slots();
    for (int64_t i = 0; i < layout.bytes; ++i) cache[i] = static_cast<std::byte>(i * 7 + 1);
    Cells expected(cache, cache + layout.bytes);
    Model(c, Rows(c, k, kKeyHeads, c.key_type, false), kKeyHeads, SizeOf(c.key_type), slots,
          layout.key_strides, expected.data());
    Model(c, Rows(c, v, kValueHeads, c.value_type, true), kValueHeads, SizeOf(c.value_type), slots,
          layout.value_strides, expected.data() + layout.value_at);
    const Cells expected_q = Rows(c, q, 5, c.dtype, false), given_k = k, given_v = v;
    const auto info = client.ApplyRoPE(CallOn(c, layout, q, k, v, slots, cache));
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(std::memcmp(cache, expected.data(), expected.size()), 0)
        << Name(c.dtype) << " to " << Name(c.key_type) << " and " << Name(c.value_type);
    EXPECT_EQ(q, expected_q) << "queries turn in place";
    EXPECT_EQ(k, given_k);
    EXPECT_EQ(v, given_v);
  }

  static std::vector<PagedCase> Cases() {
    std::vector<PagedCase> cases;
    for (const RopeLayout layout : {RopeLayout::kTokensHeads, RopeLayout::kHeadsTokens}) {
      for (const Dtype dtype : {Dtype::kBFloat16, Dtype::kFloat16}) {
        cases.push_back({dtype, dtype, dtype, layout});
        cases.push_back({dtype, Dtype::kFloat8E4M3, Dtype::kFloat8E4M3, layout});
        cases.push_back({dtype, Dtype::kFloat8E5M2, dtype, layout});
      }
    }
    return cases;
  }
};

TEST_F(ClientPagedTest, CachesThatTravelComeBackWritten) {
  for (const PagedCase& c : Cases()) {
    const CacheLayout dense = Dense(c);
    Cells cache(static_cast<size_t>(dense.bytes));
    Check(tcp_, c, dense, cache.data());
    Check(here_, c, dense, cache.data());
    if (c.key_type != c.value_type) continue;
    const CacheLayout turns = Interleaved(c);
    cache.resize(static_cast<size_t>(turns.bytes));
    Check(tcp_, c, turns, cache.data());
    Check(here_, c, turns, cache.data());
  }
}

TEST_F(ClientPagedTest, CachesInLeasedMemoryAreWrittenWhereTheyAre) {
  for (const PagedCase& c : Cases()) {
    const auto memory = unix_.AllocateShared(1 << 20);
    ASSERT_TRUE(memory.ok() && memory->shared()) << memory.status();
    Check(unix_, c, Dense(c), memory->data() + 64);
    if (c.key_type == c.value_type) Check(unix_, c, Interleaved(c), memory->data() + 64);
  }
}

TEST_F(ClientPagedTest, EverythingMayLieInLeasedMemory) {
  const PagedCase c{.key_type = Dtype::kFloat8E4M3, .value_type = Dtype::kFloat8E5M2};
  const auto memory = unix_.AllocateShared(1 << 20);
  ASSERT_TRUE(memory.ok() && memory->shared()) << memory.status();
  const CacheLayout layout = Dense(c);
  Cells q = RandomHalves(kAllTokens * 5 * kKeyDim, 1),
        k = RandomHalves(kAllTokens * kKeyHeads * kKeyDim, 2);
  Cells v = RandomHalves(kAllTokens * kValueHeads * kKeyDim, 3);
  std::vector<int64_t> slots = Slots();
  Cells expected(static_cast<size_t>(layout.bytes));
  ASSERT_TRUE(here_.ApplyRoPE(CallOn(c, layout, q, k, v, slots, expected.data())).ok());
  std::byte* at = memory->data() + layout.bytes;
  RopeCall call = CallOn(c, layout, q, k, v, slots, memory->data());
  const auto move = [&](TensorView& view) {
    std::memcpy(at, view.data, static_cast<size_t>(view.bytes));
    view.data = std::exchange(at, at + view.bytes);
  };
  move(call.tensors[1].input);
  move(call.paged->values.input);
  move(call.paged->slot_mapping);
  call.tensors.erase(call.tensors.begin());
  call.paged->key_index = 0;
  const auto info = unix_.ApplyRoPE(call);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(std::memcmp(memory->data(), expected.data(), expected.size()), 0);
}

TEST_F(ClientPagedTest, BadSlotsAreRefusedBeforeAnythingIsWritten) {
  const PagedCase c;
  const CacheLayout layout = Dense(c);
  const auto memory = unix_.AllocateShared(layout.bytes);
  ASSERT_TRUE(memory.ok() && memory->shared()) << memory.status();
  Cells ordinary(static_cast<size_t>(layout.bytes));
  const Cells zeros = ordinary;
  Cells q = RandomHalves(kAllTokens * 5 * kKeyDim, 1),
        k = RandomHalves(kAllTokens * kKeyHeads * kKeyDim, 2);
  Cells v = RandomHalves(kAllTokens * kValueHeads * kKeyDim, 3);
  const Cells given_q = q;
  struct Bad {
    size_t token;
    int64_t slot;
    const char* message;
  };
  for (const Bad& bad :
       {Bad{20, kPages * kPageSize, "slot_mapping[20]: slot 36; must be in [-1, 36)"},
        Bad{7, -2, "slot_mapping[7]: slot -2"},
        Bad{0, std::numeric_limits<int64_t>::min(), "slot_mapping[0]: slot -9"},
        Bad{9, Slots()[2], "slot_mapping[9]: slot 13 is token 2's"}}) {
    std::vector<int64_t> slots = Slots();
    slots[bad.token] = bad.slot;
    for (const Client& client : {tcp_, unix_, here_}) {
      const auto info = client.ApplyRoPE(CallOn(c, layout, q, k, v, slots, ordinary.data()));
      EXPECT_EQ(info.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(info.status().message(), HasSubstr("item.paged_cache."));
      EXPECT_THAT(info.status().message(), HasSubstr(bad.message));
    }
    const auto info = unix_.ApplyRoPE(CallOn(c, layout, q, k, v, slots, memory->data()));
    EXPECT_THAT(info.status().message(), HasSubstr(bad.message));
    EXPECT_EQ(std::memcmp(memory->data(), zeros.data(), zeros.size()), 0);
    EXPECT_EQ(ordinary, zeros);
    EXPECT_EQ(q, given_q);
  }
}

TEST_F(ClientPagedTest, CachesOverlapNothing) {
  const PagedCase c;
  CacheLayout layout = Dense(c);
  const auto memory = unix_.AllocateShared(2 * layout.bytes);
  ASSERT_TRUE(memory.ok() && memory->shared()) << memory.status();
  Cells q = RandomHalves(kAllTokens * 5 * kKeyDim, 1),
        k = RandomHalves(kAllTokens * kKeyHeads * kKeyDim, 2);
  Cells v = RandomHalves(kAllTokens * kValueHeads * kKeyDim, 3);
  std::vector<int64_t> slots = Slots();
  layout.value_at -= 2;
  auto info = unix_.ApplyRoPE(CallOn(c, layout, q, k, v, slots, memory->data()));
  EXPECT_THAT(info.status().message(), HasSubstr("item.paged_cache.value_cache: overlaps "
                                                 "item.paged_cache.key_cache"));
  layout = Dense(c);
  RopeCall call = CallOn(c, layout, q, k, v, slots, memory->data());
  call.paged->values.input.data = memory->data() + 128;  // values in the key cache
  info = unix_.ApplyRoPE(call);
  EXPECT_THAT(info.status().message(), HasSubstr("overlaps item.paged_cache.values"));
}

TEST_F(ClientPagedTest, StreamsAndBatchesWritePages) {
  const PagedCase c{.value_type = Dtype::kFloat8E4M3};
  const CacheLayout layout = Dense(c);
  Cells q = RandomHalves(kAllTokens * 5 * kKeyDim, 1),
        k = RandomHalves(kAllTokens * kKeyHeads * kKeyDim, 2);
  Cells v = RandomHalves(kAllTokens * kValueHeads * kKeyDim, 3);
  std::vector<int64_t> slots = Slots(), bad = {1};
  Cells expected(static_cast<size_t>(layout.bytes)), cache = expected, refused = expected;
  Cells expected_q = q;
  const Cells zeros = expected;
  ASSERT_TRUE(here_.ApplyRoPE(CallOn(c, layout, expected_q, k, v, slots, expected.data())).ok());
  const auto stream = tcp_.StreamApplyRoPE();
  Cells streamed_q = q;
  ASSERT_TRUE(stream->Write(1, CallOn(c, layout, streamed_q, k, v, slots, cache.data())).ok());
  const auto answer = stream->Read();
  ASSERT_TRUE(answer.has_value() && answer->result.ok());
  EXPECT_EQ(cache, expected);
  EXPECT_EQ(streamed_q, expected_q);
  cache = zeros;
  Cells batch_q = q, chunked_q = q;
  RopeCall wrong = CallOn(c, layout, q, k, v, slots, refused.data());
  wrong.paged->slot_mapping = View(bad, {1});
  const auto results =
      tcp_.BatchApplyRoPE({wrong, CallOn(c, layout, batch_q, k, v, slots, cache.data())});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_THAT((*results)[0].status().message(),
              HasSubstr("items[0].paged_cache.slot_mapping.shape: [1]; must be [tokens] = [21]"));
  EXPECT_EQ(refused, zeros);
  ASSERT_TRUE((*results)[1].ok()) << (*results)[1].status();
  EXPECT_EQ(cache, expected);
  cache = zeros;  // in chunks: as one call
  const auto info = tcp_.ApplyRoPEInChunks(CallOn(c, layout, chunked_q, k, v, slots, cache.data()),
                                           {.chunk_bytes = 4096});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(cache, expected);
}

TEST_F(ClientPagedTest, BatchesAndStreamsWriteLeasedPagesOfWhichNoTwoItemsShareOne) {
  const PagedCase c{.key_type = Dtype::kFloat8E5M2};
  const CacheLayout layout = Dense(c);
  const auto memory = unix_.AllocateShared(2 * layout.bytes);
  ASSERT_TRUE(memory.ok() && memory->shared()) << memory.status();
  std::byte* const other = memory->data() + layout.bytes;
  Cells q = RandomHalves(kAllTokens * 5 * kKeyDim, 1),
        k = RandomHalves(kAllTokens * kKeyHeads * kKeyDim, 2);
  Cells v = RandomHalves(kAllTokens * kValueHeads * kKeyDim, 3);
  std::vector<int64_t> slots = Slots();
  Cells expected(static_cast<size_t>(layout.bytes)), expected_q = q, q1 = q, q2 = q;
  ASSERT_TRUE(here_.ApplyRoPE(CallOn(c, layout, expected_q, k, v, slots, expected.data())).ok());
  const auto is_written = [&](std::byte* cache) {
    const bool same = std::memcmp(cache, expected.data(), expected.size()) == 0;
    std::memset(cache, 0, expected.size());
    return same;
  };
  auto results = unix_.BatchApplyRoPE({CallOn(c, layout, q1, k, v, slots, memory->data()),
                                       CallOn(c, layout, q2, k, v, slots, other)});
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_TRUE((*results)[0].ok() && (*results)[1].ok());
  EXPECT_TRUE(is_written(memory->data()));
  EXPECT_TRUE(is_written(other));
  EXPECT_EQ(q1, expected_q);
  q1 = q;
  const auto stream = unix_.StreamApplyRoPE();
  ASSERT_TRUE(stream->Write(1, CallOn(c, layout, q1, k, v, slots, memory->data())).ok());
  const auto answer = stream->Read();
  ASSERT_TRUE(answer.has_value() && answer->result.ok());
  EXPECT_TRUE(is_written(memory->data()));
  EXPECT_EQ(q1, expected_q);
  results = unix_.BatchApplyRoPE({CallOn(c, layout, q1, k, v, slots, memory->data()),
                                  CallOn(c, layout, q2, k, v, slots, memory->data())});
  EXPECT_EQ(results.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(results.status().message(), HasSubstr("items[1].paged_cache.key_cache: overlaps"));
}

// FLOAT8 outputs without pages, by every way there is.
TEST_F(ClientPagedTest, Float8OutputsHaveTheSameBytesEverywhere) {
  for (const Dtype dtype : {Dtype::kBFloat16, Dtype::kFloat16}) {
    for (const Dtype type : {Dtype::kFloat8E4M3, Dtype::kFloat8E5M2}) {
      const PagedCase c{.dtype = dtype};
      Cells x = RandomHalves(kAllTokens * 5 * kKeyDim, 9);
      Cells expected(x.size() / 2), got(expected.size());
      const auto call_to = [&](std::byte* out) {
        RopeTensor tensor(ViewOf(x.data(), dtype, c.Shape(5)), ViewOf(out, type, c.Shape(5)));
        tensor.inv_scale = 11.0f;
        return RopeCall{.spec = kSpec, .positions = Positions(), .tensors = {tensor}};
      };
      ASSERT_TRUE(here_.ApplyRoPE(call_to(expected.data())).ok());
      ASSERT_TRUE(tcp_.ApplyRoPE(call_to(got.data())).ok());
      EXPECT_EQ(got, expected);
      for (const Client& client : {tcp_, here_}) {
        got.assign(got.size(), std::byte{0});
        ASSERT_TRUE(client.ApplyRoPEInChunks(call_to(got.data()), {.chunk_bytes = 4096}).ok());
        EXPECT_EQ(got, expected);
      }
      const auto memory = unix_.AllocateShared(static_cast<int64_t>(3 * x.size()));
      ASSERT_TRUE(memory.ok() && memory->shared()) << memory.status();
      ASSERT_TRUE(unix_.ApplyRoPE(call_to(memory->data())).ok());
      EXPECT_EQ(std::memcmp(memory->data(), expected.data(), expected.size()), 0);
      // Input and output of a fused buffer's strides: every other row.
      std::byte* const in = memory->data() + x.size();
      for (int64_t t = 0; t < kAllTokens; ++t) {
        std::memcpy(in + t * 4 * 5 * kKeyDim, x.data() + t * 2 * 5 * kKeyDim, 2 * 5 * kKeyDim);
      }
      const std::vector<int64_t> strides = {2 * 5 * kKeyDim, kKeyDim, 1};
      RopeTensor strided(ViewOf(in, dtype, c.Shape(5), strides),
                         ViewOf(memory->data(), type, c.Shape(5), strides));
      strided.inv_scale = 11.0f;
      std::memset(memory->data(), 0, x.size());
      const auto info = unix_.ApplyRoPE(kSpec, Positions(), {strided});
      ASSERT_TRUE(info.ok()) << info.status();
      for (int64_t t = 0; t < kAllTokens; ++t) {
        EXPECT_EQ(std::memcmp(memory->data() + t * 2 * 5 * kKeyDim,
                              expected.data() + t * 5 * kKeyDim, 5 * kKeyDim),
                  0);
      }
      RopeCall in_place = call_to(x.data());
      EXPECT_THAT(here_.ApplyRoPE(in_place).status().message(),
                  HasSubstr("item.tensors[0].output: in place with another type"));
    }
  }
}

}  // namespace
}  // namespace phasor
