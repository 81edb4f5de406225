// SPDX-License-Identifier: Apache-2.0
// Tests the exporter with collectors that take, refuse, restart, hang and are gone.
#include "server/trace/span_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "absl/synchronization/notification.h"
#include "tests/support/eventually.h"
#include "tests/support/free_port.h"
#include "tests/support/trace_collector.h"

namespace phasor::trace {
namespace {

using ::testing::Contains;
using testing::Eventually;
using ::testing::SizeIs;
using testing::TraceCollector;

TraceOptions OptionsFor(const std::string& endpoint) {
  TraceOptions options;
  options.endpoint = endpoint;
  options.resource = {{"service.name", "phasor"}};
  options.schedule_delay = absl::Milliseconds(5);
  return options;
}

std::vector<Span> Spans(int count) {
  std::vector<Span> spans(static_cast<size_t>(count));
  for (Span& span : spans) span.set_name("span");
  return spans;
}

TEST(SpanExporterTest, ExportsWhatIsQueuedAndSaysWhoMadeIt) {
  TraceCollector collector;
  SpanExporter exporter(OptionsFor(collector.endpoint()), "1.2.3");
  exporter.Add(Spans(3));
  EXPECT_TRUE(Eventually([&] { return exporter.counts().exported == 3; }));
  EXPECT_THAT(collector.spans(), SizeIs(3));
  EXPECT_THAT(collector.resource(), Contains("service.name=phasor"));
  EXPECT_EQ(exporter.counts().dropped, 0);
}

TEST(SpanExporterTest, SendsHeaders) {
  TraceCollector collector;
  std::atomic<bool> seen = false;
  collector.decide = [&](grpc::ServerContext* context, auto*) {
    const auto found = context->client_metadata().find("x-key");
    seen = found != context->client_metadata().end() && found->second == "secret";
    return grpc::Status::OK;
  };
  TraceOptions options = OptionsFor(collector.endpoint());
  options.headers = {{"x-key", "secret"}};
  SpanExporter exporter(options, "");
  exporter.Add(Spans(1));
  EXPECT_TRUE(Eventually([&] { return exporter.counts().exported == 1; }));
  EXPECT_TRUE(seen);
}

TEST(SpanExporterTest, TheEndExportsTheRest) {
  TraceCollector collector;
  TraceOptions options = OptionsFor(collector.endpoint());
  options.schedule_delay = absl::Hours(1);
  options.max_batch_spans = 100;
  {
    SpanExporter exporter(options, "");
    exporter.Add(Spans(30));
  }
  EXPECT_THAT(collector.spans(), SizeIs(30));
}

TEST(SpanExporterTest, AFullBatchDoesNotWaitForTheDelay) {
  TraceCollector collector;
  TraceOptions options = OptionsFor(collector.endpoint());
  options.schedule_delay = absl::Hours(1);
  options.max_batch_spans = 10;
  SpanExporter exporter(options, "");
  for (int i = 0; i < 5; ++i) exporter.Add(Spans(4));
  EXPECT_TRUE(Eventually([&] { return exporter.counts().exported == 20; }));
}

TEST(SpanExporterTest, WhatDoesNotFitIsDroppedAndCounted) {
  TraceCollector collector;
  absl::Notification go;
  collector.decide = [&](auto*, auto*) {
    go.WaitForNotification();
    return grpc::Status::OK;
  };
  TraceOptions options = OptionsFor(collector.endpoint());
  options.max_queue_spans = 100;
  options.max_batch_spans = 10;
  SpanExporter exporter(options, "");
  exporter.Add(Spans(10));
  EXPECT_TRUE(Eventually([&] { return collector.exports == 1; }));
  for (int i = 0; i < 50; ++i) exporter.Add(Spans(5));  // 100 fit beside those on their way
  EXPECT_EQ(exporter.counts().dropped, 150);
  go.Notify();
  EXPECT_TRUE(Eventually([&] { return exporter.counts().exported == 110; }));
}

TEST(SpanExporterTest, ARestartOfTheCollectorLosesNothingThatFits) {
  const int port = testing::FreePort();
  std::optional<TraceCollector> collector(std::in_place, port);
  SpanExporter exporter(OptionsFor(collector->endpoint()), "");
  exporter.Add(Spans(1));
  EXPECT_TRUE(Eventually([&] { return exporter.counts().exported == 1; }));
  collector.reset();
  exporter.Add(Spans(2));
  collector.emplace(port);
  EXPECT_TRUE(Eventually([&] { return exporter.counts().exported == 3; }));
  EXPECT_EQ(exporter.counts().dropped, 0);
}

TEST(SpanExporterTest, RefusedSpansAreDroppedAndNotRepeated) {
  TraceCollector collector;
  collector.decide = [](auto*, auto*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no");
  };
  SpanExporter exporter(OptionsFor(collector.endpoint()), "");
  exporter.Add(Spans(4));
  EXPECT_TRUE(Eventually([&] { return exporter.counts().dropped == 4; }));
  EXPECT_EQ(collector.exports, 1);
}

TEST(SpanExporterTest, SpansThatTheCollectorRejectsCountAsDropped) {
  TraceCollector collector;
  collector.decide = [](auto*, testing::otlp::ExportTraceServiceResponse* response) {
    response->mutable_partial_success()->set_rejected_spans(3);
    return grpc::Status::OK;
  };
  SpanExporter exporter(OptionsFor(collector.endpoint()), "");
  exporter.Add(Spans(5));
  EXPECT_TRUE(Eventually([&] { return exporter.counts().dropped == 3; }));
  EXPECT_EQ(exporter.counts().exported, 2);
}

TEST(SpanExporterTest, ADeadCollectorCostsTheSpansAfterTheTimeout) {
  TraceOptions options = OptionsFor("127.0.0.1:1");
  options.export_timeout = absl::Milliseconds(500);
  SpanExporter exporter(options, "");
  exporter.Add(Spans(4));
  EXPECT_TRUE(Eventually([&] { return exporter.counts().dropped == 4; }));
}

// The end must not wait as long as a collector hangs.
TEST(SpanExporterTest, AHangingCollectorDoesNotDelayTheEnd) {
  TraceCollector collector;
  absl::Notification go;
  collector.decide = [&](auto*, auto*) {
    go.WaitForNotification();
    return grpc::Status::OK;
  };
  TraceOptions options = OptionsFor(collector.endpoint());
  options.export_timeout = absl::Hours(1);
  {
    SpanExporter exporter(options, "");
    exporter.Add(Spans(1));
    EXPECT_TRUE(Eventually([&] { return collector.exports == 1; }));
    exporter.Add(Spans(1));
  }
  go.Notify();
}

}  // namespace
}  // namespace phasor::trace
