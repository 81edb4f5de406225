// SPDX-License-Identifier: Apache-2.0
// Tests which calls are sampled, and the spans of a call.
#include "server/trace/call_tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace phasor::trace {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using Tick = engine::Phases::Tick;

const std::string kTraceId(16, 't'), kParentId(8, 'p'), kSpanId(8, 's');
const CallIds kRoot{.trace_id = kTraceId, .span_id = kSpanId};
constexpr char kMethod[] = "phasor.v1.PositionEmbeddingService/ApplyRoPE";

std::string Nothing() { return ""; }
std::string Peer() { return "ipv4:10.0.0.1:4711"; }

rpc::CallRecord Record(int code, const engine::Phases& phases) {
  return {kMethod, code, "why", absl::Milliseconds(50), 7, 9, Peer, Nothing, phases};
}

std::vector<std::string> NamesOf(const std::vector<Span>& spans) {
  std::vector<std::string> names;
  for (const Span& span : spans) names.push_back(span.name());
  return names;
}

TEST(IsSampledTest, TheCallersDecisionCountsUnlessTheSamplerIgnoresIt) {
  const TraceContext yes{kTraceId, kParentId, true}, no{kTraceId, kParentId, false};
  EXPECT_TRUE(IsSampled({}, &yes, kTraceId));
  EXPECT_FALSE(IsSampled({}, &no, kTraceId));
  EXPECT_TRUE(IsSampled({}, nullptr, kTraceId));
  EXPECT_TRUE(IsSampled({.ratio = 0}, &yes, kTraceId));
  EXPECT_FALSE(IsSampled({.ratio = 0}, nullptr, kTraceId));
  EXPECT_TRUE(IsSampled({.parent_based = false}, &no, kTraceId));
  EXPECT_FALSE(IsSampled({.parent_based = false, .ratio = 0}, &yes, kTraceId));
}

TEST(IsSampledTest, ARatioIsThatPartOfTheTraces) {
  int sampled = 0;
  for (int i = 0; i < 256; ++i) {
    const std::string id = std::string(8, 'x') + static_cast<char>(i) + std::string(7, '\0');
    sampled += IsSampled({.ratio = 0.25}, nullptr, id);
  }
  EXPECT_EQ(sampled, 64);
}

TEST(SpansTest, OfACallAreItselfAndItsStepsOneAfterAnother) {
  const Tick end = Tick() + milliseconds(1000);
  const engine::Phases phases{end - milliseconds(40), end - milliseconds(30),
                              end - milliseconds(25), end - milliseconds(10),
                              end - milliseconds(4)};
  const CallIds ids{TraceContext{kTraceId, kParentId, true}, kTraceId, kSpanId};
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const std::vector<Span> spans = SpansOf(Record(0, phases), ids, now, end);
  EXPECT_THAT(NamesOf(spans), ElementsAre(kMethod, "queue", "gather", "compute", "copy", "answer"));
  EXPECT_EQ(spans[0].parent_span_id(), kParentId);
  EXPECT_EQ(spans[0].span_id(), kSpanId);
  EXPECT_EQ(spans[0].kind(), Span::SPAN_KIND_SERVER);
  EXPECT_EQ(spans[0].end_time_unix_nano(), 1'800'000'000'000'000'000u);
  EXPECT_EQ(spans[0].end_time_unix_nano() - spans[0].start_time_unix_nano(), 50'000'000u);
  std::vector<uint64_t> lasts;
  for (size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].trace_id(), kTraceId);
    EXPECT_EQ(spans[i].parent_span_id(), spans[0].span_id());
    EXPECT_EQ(spans[i].kind(), Span::SPAN_KIND_INTERNAL);
    lasts.push_back((spans[i].end_time_unix_nano() - spans[i].start_time_unix_nano()) / 1'000'000);
    if (i == 1) continue;
    EXPECT_EQ(spans[i].start_time_unix_nano(), spans[i - 1].end_time_unix_nano());
  }
  EXPECT_THAT(lasts, ElementsAre(10, 5, 15, 6, 4));
  EXPECT_EQ(spans.back().end_time_unix_nano(), spans[0].end_time_unix_nano());
}

TEST(SpansTest, StepsThatDidNotHappenHaveNone) {
  const Tick end = Tick() + milliseconds(1000);
  EXPECT_THAT(NamesOf(SpansOf(Record(3, {}), kRoot, absl::Now(), end)), ElementsAre(kMethod));
  const engine::Phases no_copy{end, end, end, end};
  EXPECT_THAT(NamesOf(SpansOf(Record(0, no_copy), kRoot, absl::Now(), end)),
              ElementsAre(kMethod, "queue", "gather", "compute", "answer"));
}

// A collector cannot read other text, and drops all spans that were sent with it.
TEST(SpansTest, TextOfCallersIsAscii) {
  rpc::CallRecord call = Record(12, {});
  call.method = "a/\xff\xfe";
  const std::string message = std::string(511, 'm') + "\u00e9";  // is cut inside of it
  call.message = message;
  const Span span = SpansOf(call, kRoot, absl::Now(), Tick())[0];
  EXPECT_EQ(span.name(), "a/??");
  EXPECT_EQ(span.status().message(), std::string(511, 'm') + "?");
}

TEST(SpansTest, AttributesFollowTheConventions) {
  const Span span = SpansOf(Record(13, {}), kRoot, absl::Now(), Tick())[0];
  std::map<std::string, std::string> texts;
  std::map<std::string, int64_t> numbers;
  for (const auto& attribute : span.attributes()) {
    if (attribute.value().has_string_value()) {
      texts[attribute.key()] = attribute.value().string_value();
    } else {
      numbers[attribute.key()] = attribute.value().int_value();
    }
  }
  EXPECT_EQ(texts, (std::map<std::string, std::string>{
                       {"rpc.system", "grpc"},
                       {"rpc.service", "phasor.v1.PositionEmbeddingService"},
                       {"rpc.method", "ApplyRoPE"},
                       {"client.address", Peer()}}));
  EXPECT_EQ(numbers, (std::map<std::string, int64_t>{{"rpc.grpc.status_code", 13},
                                                     {"phasor.sent_bytes", 7},
                                                     {"phasor.received_bytes", 9}}));
  EXPECT_EQ(span.parent_span_id(), "");
  EXPECT_EQ(span.status().message(), "why");
}

TEST(SpansTest, OfAMessageAreItselfBelowItsStreamAndItsSteps) {
  const Tick end = Tick() + milliseconds(1000);
  const engine::Phases phases{end - milliseconds(40), end - milliseconds(30),
                              end - milliseconds(25), end - milliseconds(10)};
  const rpc::MessageRecord message{end - milliseconds(45), 0, 7, 9, phases};
  const std::vector<Span> spans = SpansOf(message, kRoot, absl::Now(), end);
  EXPECT_THAT(NamesOf(spans), ElementsAre("message", "queue", "gather", "compute", "answer"));
  EXPECT_EQ(spans[0].parent_span_id(), kSpanId);
  EXPECT_EQ(spans[0].kind(), Span::SPAN_KIND_INTERNAL);
  EXPECT_EQ(spans[0].end_time_unix_nano() - spans[0].start_time_unix_nano(), 45'000'000u);
  EXPECT_EQ(spans[0].attributes_size(), 3);
  for (size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].trace_id(), kTraceId);
    EXPECT_EQ(spans[i].parent_span_id(), spans[0].span_id());
  }
}

TEST(IdsTest, ACallHasASpanOnlyIfItIsSampled) {
  const std::string head = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-";
  const CallIds sampled = IdsOf({}, head + "01"), not_sampled = IdsOf({}, head + "00");
  EXPECT_TRUE(sampled.sampled());
  EXPECT_NE(sampled.span_id, sampled.parent->span_id);
  EXPECT_FALSE(not_sampled.sampled());
  EXPECT_EQ(not_sampled.trace_id, sampled.trace_id);
  EXPECT_NE(IdsOf({}, "").trace_id, IdsOf({}, "").trace_id);
}

TEST(SpansTest, OnlyFaultsOfTheServerAreErrors) {
  const auto code = [](int status) {
    return SpansOf(Record(status, {}), kRoot, absl::Now(), Tick())[0].status().code();
  };
  using opentelemetry::proto::collector::trace::v1::Status;
  for (const int fault : {2, 4, 12, 13, 14, 15}) EXPECT_EQ(code(fault), Status::STATUS_CODE_ERROR);
  for (const int fine : {0, 1, 3, 5, 7, 8, 9, 16}) {
    EXPECT_EQ(code(fine), Status::STATUS_CODE_UNSET);
  }
}

}  // namespace
}  // namespace phasor::trace
