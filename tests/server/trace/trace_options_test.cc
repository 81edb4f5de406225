// SPDX-License-Identifier: Apache-2.0
// Tests every OTEL_* variable that is read.
#include "server/trace/trace_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::trace {
namespace {

using ::phasor::testing::IsOk;
using ::phasor::testing::kInvalid;
using ::phasor::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr char kEndpoint[] = "OTEL_EXPORTER_OTLP_ENDPOINT";

TraceOptions Parse(Environment environment) {
  environment.try_emplace(kEndpoint, "http://collector:4317");
  const auto options = ParseTraceOptions(environment);
  EXPECT_THAT(options, IsOk());
  return options.ok() ? *options : TraceOptions();
}

TEST(TraceOptionsTest, WithoutAnEndpointNothingIsTraced) {
  for (const Environment& environment :
       {Environment(), Environment{{kEndpoint, ""}}, Environment{{"OTEL_SERVICE_NAME", "x"}},
        Environment{{kEndpoint, "http://c:1"}, {"OTEL_SDK_DISABLED", "true"}},
        Environment{{kEndpoint, "http://c:1"}, {"OTEL_TRACES_EXPORTER", "none"}}}) {
    const auto options = ParseTraceOptions(environment);
    ASSERT_THAT(options, IsOk());
    EXPECT_EQ(options->endpoint, "");
  }
}

TEST(TraceOptionsTest, EndpointsMayHaveASchemeAndThoseOfTracesWin) {
  EXPECT_EQ(Parse({{kEndpoint, "http://c:4318/"}}).endpoint, "c:4318");
  EXPECT_FALSE(Parse({{kEndpoint, "http://c:4318"}}).tls);
  EXPECT_EQ(Parse({{kEndpoint, "https://c"}}).endpoint, "c:4317");
  EXPECT_TRUE(Parse({{kEndpoint, "https://c"}}).tls);
  EXPECT_EQ(Parse({{kEndpoint, "[::1]"}}).endpoint, "[::1]:4317");
  EXPECT_TRUE(Parse({{kEndpoint, "c:1"}}).tls);
  EXPECT_FALSE(Parse({{kEndpoint, "c:1"}, {"OTEL_EXPORTER_OTLP_INSECURE", "true"}}).tls);
  EXPECT_EQ(Parse({{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:1"}}).endpoint, "own:1");
}

TEST(TraceOptionsTest, DefaultsAreThoseOfOpenTelemetry) {
  const TraceOptions options = Parse({});
  EXPECT_TRUE(options.parent_based);
  EXPECT_EQ(options.ratio, 1);
  EXPECT_EQ(options.max_queue_spans, 2048);
  EXPECT_EQ(options.max_batch_spans, 512);
  EXPECT_EQ(options.schedule_delay, absl::Seconds(5));
  EXPECT_EQ(options.export_timeout, absl::Seconds(10));
  EXPECT_THAT(options.resource, ElementsAre(Pair("service.name", "phasor")));
}

TEST(TraceOptionsTest, EachVariableIsRead) {
  const TraceOptions options = Parse({{"OTEL_SERVICE_NAME", "mine"},
                                      {"OTEL_RESOURCE_ATTRIBUTES", "a=1, service.name=no,b=x%2Cy"},
                                      {"OTEL_EXPORTER_OTLP_HEADERS", "X-Key=a%20b,empty="},
                                      {"OTEL_EXPORTER_OTLP_TIMEOUT", "250"},
                                      {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"},
                                      {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
                                      {"OTEL_BSP_SCHEDULE_DELAY", "20"},
                                      {"OTEL_BSP_MAX_QUEUE_SIZE", "100"},
                                      {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "200"},
                                      {"OTEL_TRACES_SAMPLER", "traceidratio"},
                                      {"OTEL_TRACES_SAMPLER_ARG", "0.25"}});
  EXPECT_THAT(options.resource,
              ElementsAre(Pair("a", "1"), Pair("b", "x,y"), Pair("service.name", "mine")));
  EXPECT_THAT(options.headers, ElementsAre(Pair("x-key", "a b"), Pair("empty", "")));
  EXPECT_EQ(options.export_timeout, absl::Milliseconds(250));
  EXPECT_EQ(options.ca_file, "/ca.pem");
  EXPECT_EQ(options.schedule_delay, absl::Milliseconds(20));
  EXPECT_EQ(options.max_queue_spans, 100);
  EXPECT_EQ(options.max_batch_spans, 100) << "no more than the queue has";
  EXPECT_FALSE(options.parent_based);
  EXPECT_EQ(options.ratio, 0.25);
}

TEST(TraceOptionsTest, EachSamplerIsKnown) {
  const auto sampler = [](const char* name) {
    const TraceOptions options = Parse({{"OTEL_TRACES_SAMPLER", name}});
    return std::pair(options.parent_based, options.ratio);
  };
  EXPECT_EQ(sampler("always_on"), std::pair(false, 1.0));
  EXPECT_EQ(sampler("always_off"), std::pair(false, 0.0));
  EXPECT_EQ(sampler("parentbased_always_on"), std::pair(true, 1.0));
  EXPECT_EQ(sampler("parentbased_always_off"), std::pair(true, 0.0));
  EXPECT_EQ(sampler("parentbased_traceidratio"), std::pair(true, 1.0));
}

TEST(TraceOptionsTest, WhatIsNotUnderstoodIsRefusedByName) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  for (const auto& [name, value] : Variables{{kEndpoint, "http://c:1/v1/traces"},
                                             {kEndpoint, "http://c:port"},
                                             {kEndpoint, "http://c:65536"},
                                             {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://"},
                                             {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"},
                                             {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http"},
                                             {"OTEL_EXPORTER_OTLP_INSECURE", "yes"},
                                             {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1s"},
                                             {"OTEL_SDK_DISABLED", "1"},
                                             {"OTEL_TRACES_EXPORTER", "console"},
                                             {"OTEL_TRACES_SAMPLER", "jaeger_remote"},
                                             {"OTEL_BSP_MAX_QUEUE_SIZE", "0"},
                                             {"OTEL_BSP_SCHEDULE_DELAY", "soon"},
                                             {"OTEL_EXPORTER_OTLP_TIMEOUT", "-1"}}) {
    Environment environment = {{kEndpoint, "http://c:1"}};
    environment[name] = value;
    EXPECT_THAT(ParseTraceOptions(environment),
                StatusIs(kInvalid, HasSubstr(name + ": '" + value + "' is not accepted; use ")));
  }
  EXPECT_THAT(ParseTraceOptions({{kEndpoint, "http://c:1"},
                                 {"OTEL_TRACES_SAMPLER", "traceidratio"},
                                 {"OTEL_TRACES_SAMPLER_ARG", "2"}}),
              StatusIs(kInvalid, HasSubstr("OTEL_TRACES_SAMPLER_ARG: '2'")));
}

TEST(TraceOptionsTest, HeadersThatGrpcCannotSendAreRefusedAndTheirValuesNotShown) {
  const auto parse = [](const char* headers) {
    return ParseTraceOptions({{kEndpoint, "http://c:1"}, {"OTEL_EXPORTER_OTLP_HEADERS", headers}});
  };
  EXPECT_THAT(parse("api key=secret"),
              StatusIs(kInvalid, HasSubstr("OTEL_EXPORTER_OTLP_HEADERS: 'api key' is not")));
  EXPECT_THAT(ParseTraceOptions({{kEndpoint, "http://c:1"},
                                 {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api key=secret"}}),
              StatusIs(kInvalid, HasSubstr("OTEL_EXPORTER_OTLP_TRACES_HEADERS: 'api key' is not")));
  EXPECT_THAT(parse("=secret"), StatusIs(kInvalid, HasSubstr("OTEL_EXPORTER_OTLP_HEADERS: ''")));
  for (const char* value : {"key=secret%0A", "key=s%C3%A9cret"}) {
    EXPECT_THAT(parse(value), StatusIs(kInvalid, AllOf(HasSubstr("the value of 'key' is not"),
                                                       Not(HasSubstr("cret")))));
  }
  EXPECT_THAT(parse("key-bin=s%C3%A9cret,authorization=Basic%20YTpi"), IsOk());
}

TEST(TraceOptionsTest, TheAuthoritiesOfACollectorAreReadOnlyForTls) {
  const testing::TempDir directory;
  const std::string path = directory.path() + "/ca.pem";
  const auto read = [&](const char* endpoint) {
    TraceOptions options = Parse({{kEndpoint, endpoint}, {"OTEL_EXPORTER_OTLP_CERTIFICATE", path}});
    const absl::Status status = ReadAuthorities(&options);
    return status.ok() ? absl::StatusOr<std::string>(options.authorities) : status;
  };
  EXPECT_THAT(read("https://c:1"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("OTEL_EXPORTER_OTLP_CERTIFICATE: '" + path + "' cannot be read")));
  EXPECT_THAT(read("http://c:1"), IsOk());
  std::ofstream(path) << "authorities";
  EXPECT_EQ(read("https://c:1").value_or(""), "authorities");
}

}  // namespace
}  // namespace phasor::trace
