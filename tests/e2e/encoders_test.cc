// SPDX-License-Identifier: Apache-2.0
// Tests named encoders: bytes and labels equal those of the spec written out.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/e2e/client_server.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

class EncodersTest : public ClientServerTest {
 protected:
  static const Spec& Rows() {
    static const auto* const spec = new Spec{.preset = "transformer", .dim = 16};
    return *spec;
  }
  static const Spec& Heads() {
    static const auto* const spec =
        new Spec{.preset = "rope-half-split", .rope_theta = 5e5, .head_dim = 8};
    return *spec;
  }
  static ServerOptions WithEncoders() {
    ServerOptions options;
    options.encoders = {{"rows", Rows()}, {"heads", Heads()}};
    return options;
  }
};

TEST_F(EncodersTest, NamedRowsAreThoseOfTheSpec) {
  Start(WithEncoders());
  const std::vector<int64_t> positions = {0, 3, 1000};
  const auto named = tcp_.Encode({.encoder = "rows"}, positions);
  const auto spelled_out = tcp_.Encode(Rows(), positions);
  ASSERT_TRUE(named.ok()) << named.status();
  ASSERT_TRUE(spelled_out.ok()) << spelled_out.status();
  EXPECT_TRUE(std::equal(named->span().begin(), named->span().end(), spelled_out->span().begin(),
                         spelled_out->span().end()));
  EXPECT_EQ(named->info().spec_fingerprint, spelled_out->info().spec_fingerprint);
}

TEST_F(EncodersTest, BatchesAndStreamsKnowThemToo) {
  Start(WithEncoders());
  std::vector<EncodeCall> calls(3, {.spec = {.encoder = "rows"}, .positions = {5, 6}});
  calls[1].spec.encoder = "rowss";
  const auto batch = tcp_.BatchEncode(calls);
  ASSERT_TRUE(batch.ok()) << batch.status();
  const std::string expected = tcp_.ResolveSpec(Rows())->info.spec_fingerprint;
  EXPECT_EQ((*batch)[0]->info.spec_fingerprint, expected);
  EXPECT_THAT((*batch)[1],
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("items[1].spec.encoder")));
  EXPECT_EQ((*batch)[2]->info.spec_fingerprint, expected);

  const auto stream = tcp_.StreamEncode();
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_THAT(stream->Write(static_cast<int64_t>(i), calls[i]), testing::IsOk());
  }
  stream->WritesDone();
  int answers = 0;
  while (auto answer = stream->Read()) {
    ++answers;
    if (answer->id == 1) {
      EXPECT_EQ(answer->result.status().code(), absl::StatusCode::kNotFound);
    } else {
      EXPECT_EQ(answer->result->info.spec_fingerprint, expected);
    }
  }
  EXPECT_EQ(answers, 3);
  EXPECT_THAT(stream->Finish(), testing::IsOk());
}

TEST_F(EncodersTest, NamedHeadsAreThoseOfTheSpecAlsoWhenMoved) {
  Start(WithEncoders());
  std::vector<float> named(2 * 3 * 8, 0.5f), spelled_out = named;
  RopeCall call{.spec = {.encoder = "heads"},
                .positions = IntegerRange{.start = 7, .count = 2},
                .tensors = {MutableView(named, {2, 3, 8})},
                .direction = Direction::kDelta,
                .from_positions = IntegerRange{.start = 1, .count = 2},
                .from_spec = Spec{.encoder = "heads", .rope_theta = 1e4}};
  ASSERT_THAT(tcp_.ApplyRoPE(call), testing::IsOk());
  call.spec = Heads();
  call.from_spec = Heads();
  call.from_spec->rope_theta = 1e4;
  call.tensors = {MutableView(spelled_out, {2, 3, 8})};
  ASSERT_THAT(tcp_.ApplyRoPE(call), testing::IsOk());
  EXPECT_EQ(named, spelled_out);
}

TEST_F(EncodersTest, ResolveSpecAndServerInfoShowThem) {
  Start(WithEncoders());
  const auto named = tcp_.ResolveSpec({.encoder = "heads"});
  const auto spelled_out = tcp_.ResolveSpec(Heads());
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->spec, spelled_out->spec);
  EXPECT_EQ(named->info.spec_fingerprint, spelled_out->info.spec_fingerprint);
  const auto info = tcp_.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  ASSERT_EQ(info->encoders.size(), 2u);
  EXPECT_EQ(info->encoders[0], (EncoderInfo{"heads", named->info.spec_fingerprint}));
  EXPECT_EQ(info->encoders[1].name, "rows");
}

TEST_F(EncodersTest, UnknownNamesAreNotFoundWithTheNearestOne) {
  Start(WithEncoders());
  EXPECT_THAT(tcp_.Encode({.encoder = "row"}, {1.0}).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("item.spec.encoder: no encoder named \"row\"; did you mean "
                                 "\"rows\"? must be one of heads, rows")));
  EXPECT_THAT(tcp_.ResolveSpec({.encoder = "row"}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("did you mean \"rows\"?")));
  EXPECT_THAT(here_.Encode({.encoder = "rows"}, {1.0}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none is configured here")));
}

TEST_F(EncodersTest, ReloadReplacesEncodersAndLimitsTogetherOrNotAtAll) {
  Start(WithEncoders());
  ServerOptions next = WithEncoders();
  next.listen = server_->listeners();
  next.encoders[0].spec.dim = 32;
  next.max_batch_items = 9;
  const auto report = server_->Reload(next);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->changed, ::testing::Contains("max-batch-items: 4096 -> 9"));
  EXPECT_THAT(report->changed, ::testing::Contains("encoders.rows: changed"));
  EXPECT_EQ(tcp_.ResolveSpec({.encoder = "rows"})->width, 32);
  EXPECT_EQ(tcp_.GetServerInfo()->max_batch_items, 9);

  next.max_batch_items = 10;
  next.encoders[1].spec = {.preset = "no-such-preset"};
  EXPECT_THAT(server_->Reload(next).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("encoders[1].spec.preset: ")));
  EXPECT_EQ(tcp_.GetServerInfo()->max_batch_items, 9);
  EXPECT_EQ(tcp_.GetServerInfo()->encoders.size(), 2u);
}

}  // namespace
}  // namespace phasor
