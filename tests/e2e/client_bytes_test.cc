// SPDX-License-Identifier: Apache-2.0
// Tests that TCP, a Unix socket and in process give the same bytes.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "tests/e2e/client_server.h"

namespace phasor {
namespace {

using ::testing::SizeIs;

class ClientBytesTest : public ClientServerTest {
 protected:
  void SetUp() override { Start(); }

  // Elements of any type with every exponent that a rotation meets, no NaN.
  static std::vector<std::byte> RandomBits(Dtype dtype, int64_t count) {
    std::mt19937_64 random(42);
    std::vector<std::byte> bytes(static_cast<size_t>(count * SizeOf(dtype)));
    for (int64_t i = 0; i < count; ++i) {
      const double value = std::ldexp(1.0 + static_cast<double>(random() % 1024) / 1024,
                                      static_cast<int>(random() % 20) - 10);
      const float narrow = static_cast<float>(value);
      uint32_t bits = 0;
      std::memcpy(&bits, &narrow, sizeof(bits));
      const uint16_t upper =
          static_cast<uint16_t>(dtype == Dtype::kBFloat16 ? bits >> 16 : 0x3C00 + i % 1024);
      std::byte* place = bytes.data() + i * SizeOf(dtype);
      if (dtype == Dtype::kFloat64) std::memcpy(place, &value, 8);
      if (dtype == Dtype::kFloat32) std::memcpy(place, &narrow, 4);
      if (SizeOf(dtype) == 2) std::memcpy(place, &upper, 2);
    }
    return bytes;
  }

  std::vector<const Client*> Clients() const { return {&here_, &tcp_, &unix_}; }
};

TEST_F(ClientBytesTest, EncodedRowsAreEqualForEveryTypeAndPresetAndSize) {
  for (Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    for (const char* preset : {"transformer", "timestep-sin-cos", "flow-periods"}) {
      for (int64_t tokens : {0, 1, 33, 5000}) {  // up to 5 MB: several slices
        std::vector<EncodeResult> results;
        for (const Client* client : Clients()) {
          auto result = client->Encode(EncodeCall{.spec = {.preset = preset, .dim = 130},
                                                  .positions = RealRange{-3.25, 0.7, tokens},
                                                  .output_dtype = dtype});
          ASSERT_TRUE(result.ok()) << result.status();
          results.push_back(*std::move(result));
        }
        for (const EncodeResult& other : results) {
          EXPECT_EQ(other.output.shape, results[0].output.shape);
          EXPECT_EQ(other.info, results[0].info);
          ASSERT_EQ(other.bytes.size(), results[0].bytes.size());
          EXPECT_EQ(std::memcmp(other.bytes.data(), results[0].bytes.data(),
                                static_cast<size_t>(other.bytes.size())),
                    0);
        }
      }
    }
  }
}

TEST_F(ClientBytesTest, RotaryTablesAreEqualInEveryLayout) {
  for (int i = 1; i <= static_cast<int>(EncodeOutput::kSinRepeated); ++i) {
    std::vector<EncodeResult> results;
    for (const Client* client : Clients()) {
      auto result = client->Encode(EncodeCall{.spec = {.preset = "llama-3"},
                                              .positions = IntegerRange{131000, 1, 50},
                                              .output_dtype = Dtype::kBFloat16,
                                              .form = static_cast<EncodeOutput>(i)});
      ASSERT_TRUE(result.ok()) << result.status();
      results.push_back(*std::move(result));
    }
    for (const EncodeResult& other : results) {
      EXPECT_EQ(other.output.shape, results[0].output.shape);
      ASSERT_EQ(other.bytes.size(), results[0].bytes.size());
      EXPECT_EQ(std::memcmp(other.bytes.data(), results[0].bytes.data(),
                            static_cast<size_t>(other.bytes.size())),
                0);
    }
  }
}

TEST_F(ClientBytesTest, RotatedTensorsAreEqualForEveryTypeAndDirection) {
  constexpr int64_t kTokens = 700, kHeads = 3, kLanes = 64;
  std::vector<int64_t> positions, from;
  for (int64_t t = 0; t < kTokens; ++t) {
    positions.push_back(t * 7919 % 4294967291);
    from.push_back(t);
  }
  for (Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16}) {
    for (Direction direction : {Direction::kForward, Direction::kInverse, Direction::kDelta}) {
      std::vector<std::vector<std::byte>> rotated;
      for (const Client* client : Clients()) {
        auto& q = rotated.emplace_back(RandomBits(dtype, kTokens * kHeads * kLanes));
        auto k = RandomBits(dtype, kTokens * kLanes);
        RopeCall call{.spec = {.preset = "rope-half-split"}, .positions = positions};
        call.tensors = {
            MutableTensorView{{dtype, {kTokens, kHeads, kLanes}, {}}, q.data(), std::ssize(q)},
            MutableTensorView{{dtype, {kTokens, 1, kLanes}, {}}, k.data(), std::ssize(k)}};
        call.direction = direction;
        if (direction == Direction::kDelta) call.from_positions = from;
        auto info = client->ApplyRoPE(call);
        ASSERT_TRUE(info.ok()) << info.status();
        q.insert(q.end(), k.begin(), k.end());
      }
      EXPECT_EQ(rotated[1], rotated[0]);
      EXPECT_EQ(rotated[2], rotated[0]);
      EXPECT_NE(rotated[0], RandomBits(dtype, kTokens * (kHeads + 1) * kLanes));
    }
  }
}

TEST_F(ClientBytesTest, StridedTensorsAreEqualAndGapsUntouched) {
  std::vector<std::vector<float>> fused;
  for (const Client* client : Clients()) {
    std::vector<float>& memory = fused.emplace_back(100 * 24);
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 97);
    auto info = client->ApplyRoPE({.preset = "rope-interleaved"}, IntegerRange{.count = 100},
                                  {MutableView(memory, {100, 2, 8}, {24, 8, 1})});
    ASSERT_TRUE(info.ok()) << info.status();
    for (size_t i = 0; i < memory.size(); ++i) {
      if (i % 24 >= 16) {
        ASSERT_EQ(memory[i], static_cast<float>(i % 97));
      }
    }
  }
  EXPECT_EQ(fused[1], fused[0]);
  EXPECT_EQ(fused[2], fused[0]);
}

// Scores in every order of their dimensions, in several slices, and a table beside them.
TEST_F(ClientBytesTest, BiasesAddedToStridedScoresAreEqual) {
  constexpr int64_t kHeads = 4, kQueries = 64, kKeys = 128;
  const std::vector<std::vector<int64_t>> orders = {
      {kQueries * kKeys, kKeys, 1}, {kKeys, kHeads * kKeys, 1}, {kQueries * kKeys * 2, kKeys, 1}};
  std::vector<float> scores(kHeads * kQueries * kKeys * 2);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i % 8191);
  std::vector<float> table(32 * kHeads);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i) / 16;
  for (const char* preset : {"alibi", "t5"}) {
    for (const std::vector<int64_t>& strides : orders) {
      BiasCall call{.spec = {.preset = preset}, .heads = kHeads};
      call.query_positions = IntegerRange{.count = kQueries};
      call.key_positions = IntegerRange{.count = kKeys};
      if (call.spec.preset == "t5") call.table_values = View(table, {32, kHeads});
      std::vector<std::vector<std::byte>> sums;
      for (const Client* client : Clients()) {
        call.add_to.reset();
        const auto plain = client->AttentionBias(call);
        ASSERT_TRUE(plain.ok()) << plain.status();
        call.add_to = View(scores, {kHeads, kQueries, kKeys}, strides);
        const auto sum = client->AttentionBias(call);
        ASSERT_TRUE(sum.ok()) << sum.status();
        sums.emplace_back(sum->bytes.data(), sum->bytes.data() + sum->bytes.size());
        const auto at = [](const auto& bytes, int64_t i) {
          float value = 0;
          std::memcpy(&value, bytes.data() + i * 4, 4);
          return value;
        };
        for (int64_t i = 0; i < kHeads * kQueries * kKeys; ++i) {
          const int64_t from =
              i / (kQueries * kKeys) * strides[0] + i / kKeys % kQueries * strides[1] + i % kKeys;
          ASSERT_EQ(at(sum->bytes, i), at(plain->bytes, i) + scores[from]) << preset << " " << i;
        }
      }
      EXPECT_EQ(sums[1], sums[0]);
      EXPECT_EQ(sums[2], sums[0]);
    }
  }
}

TEST_F(ClientBytesTest, AddedEmbeddingsAreEqual) {
  std::vector<std::vector<float>> sums;
  for (const Client* client : Clients()) {
    std::vector<float>& sum = sums.emplace_back(50 * 96);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<float>(i) * 0.001f;
    EncodeCall call{.spec = {.preset = "transformer", .dim = 96},
                    .positions = IntegerRange{.count = 50}};
    call.add_to = View(sum, {50, 96});
    call.embedding_scale = 9.797958971132712;
    call.output = MutableView(sum, {50, 96});  // in place, over the wire too
    ASSERT_TRUE(client->Encode(call).ok());
  }
  EXPECT_EQ(sums[1], sums[0]);
  EXPECT_EQ(sums[2], sums[0]);
}

TEST_F(ClientBytesTest, BatchesMixSuccessAndFailureAlike) {
  const std::vector<float> small(1);
  std::vector<std::vector<absl::StatusOr<EncodeResult>>> batches;
  for (const Client* client : Clients()) {
    std::vector<EncodeCall> calls(4);
    calls[0] = {.spec = {.preset = "transformer", .dim = 8}, .positions = {1, 2}};
    calls[1] = {.spec = {.preset = "transformer", .dim = 7}, .positions = {1}};
    calls[2] = {.spec = {.preset = "transformer", .dim = 8}, .positions = {1}};
    calls[2].add_to = View(small, {1, 8});
    calls[3] = {.spec = {.preset = "grid-2d-sum", .dim = 8},
                .positions = PositionGrid{{IntegerRange{.count = 3}, IntegerRange{.count = 2}}}};
    auto results = client->BatchEncode(calls);
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_THAT(*results, SizeIs(4));
    batches.push_back(*std::move(results));
  }
  for (const auto& batch : batches) {
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(batch[i].status(), batches[0][i].status()) << i;
      EXPECT_EQ(batch[i].ok(), i == 0 || i == 3) << i;
      if (!batch[i].ok()) continue;
      EXPECT_EQ(std::memcmp(batch[i]->bytes.data(), batches[0][i]->bytes.data(),
                            static_cast<size_t>(batch[i]->bytes.size())),
                0);
    }
  }
}

// The server computes items together that differ only in the start of their range.
TEST_F(ClientBytesTest, AnItemOfABatchGivesWhatItsOwnCallGives) {
  std::vector<EncodeCall> calls;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBFloat16}) {
    for (const int64_t count : {1, 1, 1, 40, 40, 3}) {
      const int64_t start = static_cast<int64_t>(calls.size()) * 1000003 - 5000000;
      calls.push_back({.spec = {.preset = "transformer", .dim = 34},
                       .positions = IntegerRange{.start = start, .count = count},
                       .output_dtype = dtype});
    }
  }
  for (int time = 0; time < 3; ++time) {  // the second time the server knows the items
    const auto batch = tcp_.BatchEncode(calls);
    ASSERT_TRUE(batch.ok()) << batch.status();
    ASSERT_THAT(*batch, SizeIs(calls.size()));
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto alone = here_.Encode(calls[i]);
      ASSERT_TRUE(alone.ok() && (*batch)[i].ok()) << (*batch)[i].status();
      EXPECT_EQ((*batch)[i]->output.shape, alone->output.shape);
      EXPECT_EQ((*batch)[i]->info, alone->info);
      ASSERT_EQ((*batch)[i]->bytes.size(), alone->bytes.size());
      EXPECT_EQ(std::memcmp((*batch)[i]->bytes.data(), alone->bytes.data(),
                            static_cast<size_t>(alone->bytes.size())),
                0)
          << i;
    }
    std::swap(calls[0], calls[1]);
  }
}

TEST_F(ClientBytesTest, SpecsResolveAlike) {
  for (const Spec& spec :
       {Spec{.preset = "llama-3"}, Spec{.preset = "flux"}, Spec{.preset = "timm-2d", .dim = 24},
        Spec{.preset = "timestep-sin-cos", .dim = 7}}) {
    auto here = here_.ResolveSpec(spec, parity::Comparison{});
    auto there = tcp_.ResolveSpec(spec, parity::Comparison{});
    ASSERT_TRUE(here.ok()) << here.status();
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(there->spec, here->spec);
    EXPECT_EQ(there->width, here->width);
    EXPECT_EQ(there->info, here->info);
    EXPECT_EQ(there->parity_difference, here->parity_difference);
    EXPECT_EQ(there->parity_difference.has_value(),
              spec.preset == "llama-3" || spec.preset == "timestep-sin-cos");
    ASSERT_EQ(there->pairs.size(), here->pairs.size());
    for (size_t j = 0; j < here->pairs.size(); ++j) {
      EXPECT_EQ(there->pairs[j].axis, here->pairs[j].axis);
      EXPECT_EQ(there->pairs[j].turns, here->pairs[j].turns);
      EXPECT_EQ(there->pairs[j].inv_freq, here->pairs[j].inv_freq);
      EXPECT_EQ(there->pairs[j].phase_offset, here->pairs[j].phase_offset);
    }
  }
}

TEST_F(ClientBytesTest, ModelsResolveAlike) {
  for (const char* const config :
       {R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"},
            "vision_config": {"model_type": "siglip_vision_model"}})",
        R"({"model_type": "smollm3"})"}) {
    const auto here = here_.ResolveModel({.config_json = config});
    const auto there = tcp_.ResolveModel({.config_json = config});
    ASSERT_TRUE(here.ok()) << here.status();
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(there->specs, here->specs);
    EXPECT_EQ(there->parts, here->parts);
  }
  for (const Spec& spec :
       {Spec(), Spec{.preset = "llama-2", .config_json = "{}"}, Spec{.config_json = "[1]"}}) {
    const absl::Status here = here_.ResolveModel(spec).status();
    EXPECT_EQ(here.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(tcp_.ResolveModel(spec).status(), here);
  }
}

TEST_F(ClientBytesTest, ServersDescribeThemselves) {
  auto presets = tcp_.ListPresets();
  ASSERT_TRUE(presets.ok()) << presets.status();
  ASSERT_THAT(*presets, SizeIs(Presets().size()));
  for (size_t i = 0; i < presets->size(); ++i) {
    EXPECT_EQ((*presets)[i].name, Presets()[i].name);
    EXPECT_EQ((*presets)[i].spec, Presets()[i].spec);
    EXPECT_EQ((*presets)[i].required_fields, Presets()[i].required_fields);
    EXPECT_EQ((*presets)[i].context_length, Presets()[i].context_length);
    EXPECT_EQ((*presets)[i].verified, Presets()[i].verified);
    EXPECT_EQ((*presets)[i].note, Presets()[i].note);
  }
  auto info = unix_.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->numerics_version, kNumericsVersion);
  EXPECT_GT(info->max_message_bytes, 0);
  EXPECT_EQ(*tcp_.CheckHealth(), Health::kServing);
  EXPECT_EQ(*tcp_.CheckHealth("phasor.v1.PositionEmbeddingService"), Health::kServing);
  EXPECT_EQ(tcp_.CheckHealth("no.such.Service").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ClientBytesTest, ManyAsynchronousCallsAnswerTheirOwnPositions) {
  std::vector<std::future<absl::StatusOr<Array<double>>>> futures;
  const Spec spec = {.preset = "transformer", .dim = 64};
  for (int i = 0; i < 64; ++i) {
    futures.push_back(tcp_.EncodeAsync<double>(spec, std::vector<int64_t>{i, i * 1000}));
  }
  for (int i = 0; i < 64; ++i) {
    auto rows = futures[i].get();
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_EQ(std::memcmp(rows->data(), here_.Encode<double>(spec, {i, i * 1000})->data(),
                          2 * 64 * sizeof(double)),
              0);
  }
}

}  // namespace
}  // namespace phasor
