// SPDX-License-Identifier: Apache-2.0
// Tests a whole server with a collector: the spans of one call, whose trace is its caller's, and
// many calls while the collector hangs, restarts or is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "absl/synchronization/notification.h"
#include "client/client.h"
#include "inference/grpc_service.grpc.pb.h"
#include "server/server.h"
#include "tests/support/eventually.h"
#include "tests/support/free_port.h"
#include "tests/support/http_get.h"
#include "tests/support/running_server.h"
#include "tests/support/status_matchers.h"
#include "tests/support/trace_collector.h"

namespace phasor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::Eventually;
using testing::IsOk;
using testing::TraceCollector;

const Spec kSpec{.preset = "timestep-sin-cos", .dim = 16};
const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";
constexpr int kCalls = 10000, kThreads = 4;

std::unique_ptr<Server> StartTraced(const std::string& endpoint,
                                    std::map<std::string, std::string> variables = {}) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.metrics_listen = {"127.0.0.1:0"};
  options.log_level = "off";
  options.otel_variables = std::move(variables);
  options.otel_variables.try_emplace("OTEL_BSP_SCHEDULE_DELAY", "10");
  options.otel_variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://" + endpoint;
  auto server = Server::Start(options);
  EXPECT_THAT(server, IsOk());
  return server.ok() ? *std::move(server) : nullptr;
}

absl::Status CallOnce(const Client& client, const Metadata& metadata = {}) {
  return client.Encode(kSpec, {1, 2, 3}, {.metadata = metadata}).status();
}

// A metric of the server.
int64_t Metric(const Server& server, const std::string& name) {
  const std::string page = testing::HttpGet(server.metrics_listeners()[0], "/metrics");
  const size_t at = page.find("\n" + name + " ");
  return at == page.npos ? -1 : std::atoll(page.c_str() + at + name.size() + 2);
}

TEST(TracedServerTest, ACallIsASpanOfItsCallersTraceWithItsSteps) {
  TraceCollector collector;
  const auto server = StartTraced(collector.endpoint(), {{"OTEL_SERVICE_NAME", "encoder"}});
  const Client client = *Client::Connect(server->listeners()[0]);
  ASSERT_THAT(CallOnce(client, {{"traceparent", "00-" + kTrace + "-" + kSpan + "-01"}}), IsOk());
  ASSERT_THAT(CallOnce(client, {{"traceparent", "00-" + kTrace + "-" + kSpan + "-00"}}), IsOk());
  EXPECT_TRUE(Eventually([&] { return collector.spans().size() >= 5; }));
  EXPECT_THAT(collector.resource(), Contains("service.name=encoder"));
  std::vector<std::string> names;
  for (const auto& span : collector.spans()) {
    names.push_back(span.name());
    EXPECT_EQ(span.trace_id(), "\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36");
    EXPECT_LE(span.start_time_unix_nano(), span.end_time_unix_nano());
  }
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("phasor.v1.PositionEmbeddingService/Encode",
                                                     "queue", "gather", "compute", "answer"))
      << "the call that was not sampled has no spans";
  EXPECT_EQ(collector.spans()[0].parent_span_id(),
            std::string("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8));
}

// Of the Open Inference Protocol, as Triton's clients ask.
std::map<std::string, std::string> TraceSettings(const Server& server) {
  const auto stub =
      inference::GRPCInferenceService::NewStub(testing::NewChannel(server.listeners()[0]));
  grpc::ClientContext context;
  inference::TraceSettingResponse response;
  EXPECT_TRUE(stub->TraceSetting(&context, {}, &response).ok());
  std::map<std::string, std::string> settings;
  for (const auto& [name, setting] : response.settings()) settings[name] = setting.value(0);
  return settings;
}

TEST(TracedServerTest, TraceSettingSaysWhatIsTraced) {
  TraceCollector collector;
  EXPECT_EQ(TraceSettings(*StartTraced(collector.endpoint()))["trace_rate"], "1");
  const auto some = StartTraced(collector.endpoint(), {{"OTEL_TRACES_SAMPLER", "traceidratio"},
                                                       {"OTEL_TRACES_SAMPLER_ARG", "0.25"}});
  EXPECT_THAT(TraceSettings(*some), Contains(std::pair("trace_rate", "4")));
  EXPECT_THAT(TraceSettings(*some), Contains(std::pair("trace_level", "TIMESTAMPS")));
  const auto none = StartTraced(collector.endpoint(), {{"OTEL_TRACES_SAMPLER", "always_off"}});
  EXPECT_THAT(TraceSettings(*none), Contains(std::pair("trace_level", "OFF")));
}

// The names of the children of a span, in the order in which they came.
std::vector<std::string> ChildrenOf(const std::vector<testing::otlp::Span>& spans,
                                    const std::string& parent) {
  std::vector<std::string> names;
  for (const auto& span : spans) {
    if (span.parent_span_id() == parent) names.push_back(span.name());
  }
  return names;
}

TEST(TracedServerTest, MessagesOfAStreamAreSpansBelowItWhileItRuns) {
  TraceCollector collector;
  const auto server = StartTraced(collector.endpoint());
  const Client client = *Client::Connect(server->listeners()[0]);
  const auto stream =
      client.StreamEncode({.metadata = {{"traceparent", "00-" + kTrace + "-" + kSpan + "-01"}}});
  for (const int64_t id : {1, 2}) {
    ASSERT_THAT(stream->Write(id, {.spec = kSpec, .positions = {1, 2, 3}}), IsOk());
  }
  EXPECT_TRUE(stream->Read()->result.ok());
  EXPECT_TRUE(stream->Read()->result.ok());
  EXPECT_TRUE(Eventually([&] { return collector.spans().size() >= 10; })) << "before its end";
  const std::string stream_id = collector.spans()[0].parent_span_id();
  EXPECT_THAT(ChildrenOf(collector.spans(), stream_id), ElementsAre("message", "message"));
  for (const auto& span : collector.spans()) {
    if (span.name() != "message") continue;
    EXPECT_THAT(ChildrenOf(collector.spans(), span.span_id()),
                ElementsAre("queue", "gather", "compute", "answer"));
  }
  ASSERT_THAT(stream->Finish(), IsOk());
  EXPECT_TRUE(Eventually([&] { return collector.spans().size() >= 11; }));
  const auto whole = collector.spans().back();
  EXPECT_EQ(whole.name(), "phasor.v1.PositionEmbeddingService/StreamEncode");
  EXPECT_EQ(whole.span_id(), stream_id);
  EXPECT_EQ(whole.parent_span_id(), std::string("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8));
}

// Clients of Triton may ask that a failed request ends the stream with its status.
TEST(TracedServerTest, AMessageThatEndsItsStreamIsASpanToo) {
  TraceCollector collector;
  const auto server = StartTraced(collector.endpoint());
  const auto stub =
      inference::GRPCInferenceService::NewStub(testing::NewChannel(server->listeners()[0]));
  testing::TestContext context;
  context.AddMetadata("triton_grpc_error", "true");
  const auto stream = stub->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write({}));  // names no model
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(Eventually([&] { return collector.spans().size() >= 2; }));
  std::vector<std::string> names;
  for (const auto& span : collector.spans()) names.push_back(span.name());
  EXPECT_THAT(names, ElementsAre("message", "inference.GRPCInferenceService/ModelStreamInfer"));
}

TEST(TracedServerTest, AStreamThatIsNotSampledHasNoSpans) {
  TraceCollector collector;
  const auto server = StartTraced(collector.endpoint());
  const Client client = *Client::Connect(server->listeners()[0]);
  const auto stream =
      client.StreamEncode({.metadata = {{"traceparent", "00-" + kTrace + "-" + kSpan + "-00"}}});
  ASSERT_THAT(stream->Write(1, {.spec = kSpec, .positions = {1}}), IsOk());
  EXPECT_TRUE(stream->Read()->result.ok());
  ASSERT_THAT(stream->Finish(), IsOk());
  ASSERT_THAT(CallOnce(client), IsOk());  // its spans come later
  EXPECT_TRUE(Eventually([&] { return collector.spans().size() >= 5; }));
  for (const auto& span : collector.spans()) EXPECT_NE(span.name(), "message");
  EXPECT_EQ(collector.spans().size(), 5u);
}

TEST(TracedServerTest, CallsWithoutATraceBeginOneAndHealthHasNone) {
  TraceCollector collector;
  const auto server = StartTraced(collector.endpoint());
  const Client client = *Client::Connect(server->listeners()[0]);
  ASSERT_THAT(client.CheckHealth(), IsOk());
  ASSERT_THAT(CallOnce(client), IsOk());
  EXPECT_FALSE(client.Encode({.preset = "none"}, {1}).ok());
  EXPECT_TRUE(Eventually([&] { return collector.spans().size() >= 6; }));
  std::set<std::string> traces;
  for (const auto& span : collector.spans()) {
    traces.insert(span.trace_id());
    EXPECT_EQ(span.name().find("grpc.health"), std::string::npos);
  }
  EXPECT_EQ(traces.size(), 2u);
}

TEST(TracedServerTest, AVariableThatIsNotUnderstoodStopsTheStart) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.otel_variables = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"},
                            {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"}};
  EXPECT_THAT(
      Server::Start(options),
      testing::StatusIs(testing::kInvalid, ::testing::HasSubstr("OTEL_EXPORTER_OTLP_PROTOCOL")));
}

// 10,000 sampled calls; every one must be answered, and every span exported or counted as dropped.
class TraceLoadTest : public ::testing::Test {
 protected:
  void Run(const Server& server) {
    std::vector<std::thread> threads;
    std::atomic<int> failed = 0;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        const Client client = *Client::Connect(server.listeners()[0], {.max_attempts = 1});
        for (int i = 0; i < kCalls / kThreads; ++i) failed += !CallOnce(client).ok();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failed, 0);
  }
  static int64_t Accounted(const Server& server) {
    return Metric(server, "phasor_spans_exported_total") +
           Metric(server, "phasor_spans_dropped_total");
  }
  static constexpr int64_t kSpans = 5 * kCalls;
  // A queue that holds them all, where none should be lost.
  const std::map<std::string, std::string> roomy_ = {{"OTEL_BSP_MAX_QUEUE_SIZE", "100000"}};
};

TEST_F(TraceLoadTest, ALiveCollectorGetsEverySpan) {
  TraceCollector collector;
  const auto server = StartTraced(collector.endpoint(), roomy_);
  Run(*server);
  EXPECT_TRUE(Eventually([&] { return Metric(*server, "phasor_spans_exported_total") == kSpans; }));
  EXPECT_EQ(Metric(*server, "phasor_spans_dropped_total"), 0);
}

TEST_F(TraceLoadTest, ADeadCollectorFailsNoCall) {
  const auto server = StartTraced("127.0.0.1:1", {{"OTEL_EXPORTER_OTLP_TIMEOUT", "100"}});
  Run(*server);
  EXPECT_TRUE(Eventually([&] { return Accounted(*server) == kSpans; }));
  EXPECT_EQ(Metric(*server, "phasor_spans_exported_total"), 0);
}

TEST_F(TraceLoadTest, AHangingCollectorFailsNoCall) {
  TraceCollector collector;
  absl::Notification go;
  collector.decide = [&](auto*, auto*) {
    go.WaitForNotification();
    return grpc::Status::OK;
  };
  const auto server = StartTraced(collector.endpoint());
  Run(*server);
  // All but one batch and the queue are lost already.
  EXPECT_GE(Metric(*server, "phasor_spans_dropped_total"), kSpans - 2048 - 512);
  go.Notify();
  EXPECT_TRUE(Eventually([&] { return Accounted(*server) == kSpans; }));
}

TEST_F(TraceLoadTest, ARestartingCollectorFailsNoCall) {
  const int port = testing::FreePort();
  std::optional<TraceCollector> collector(std::in_place, port);
  const auto server = StartTraced(collector->endpoint(), roomy_);
  std::thread load([&] { Run(*server); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Eventually([&] { return collector->exports > 0; }));
    collector.reset();
    collector.emplace(port);
  }
  load.join();
  EXPECT_TRUE(Eventually([&] { return Accounted(*server) == kSpans; }));
}

}  // namespace
}  // namespace phasor
