// SPDX-License-Identifier: Apache-2.0
// Tests options from every source, their precedence and their ranges.
#include "server/config/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "kernels/base/text.h"
#include "server/config/option_table.h"
#include "tests/support/server_command_fixture.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One option: a value that is not its default, how to see that it was set, and values refused.
struct Case {
  std::string name;
  std::string text;
  std::function<bool(const ServerOptions&)> is_set;
  std::vector<std::string> refused;
  std::map<std::string, std::string> needs = {};  // environment without which it means nothing
};

const std::vector<Case>& Cases() {
  using O = ServerOptions;
  static const auto* const cases = new std::vector<Case>{
      {"listen",
       "[::1]:7,unix:/a",
       [](const O& o) {
         return o.listen == std::vector<std::string>{"[::1]:7", "unix:/a"};
       },
       {"", "nowhere", ","}},
      {"socket-mode",
       "0600",
       [](const O& o) { return o.socket_mode == 0600; },
       {"", "0800", "1777", "66", "00660", "-66", "0x1", "rw"}},
      {"socket-group", "phasor", [](const O& o) { return o.socket_group == "phasor"; }, {}},
      {"tables-rescan-interval",
       "0",
       [](const O& o) { return o.tables_rescan_interval == absl::ZeroDuration(); },
       {"1ms", "25h"}},
      {"backend", "cuda", [](const O& o) { return o.backend == "cuda"; }, {"gpu", ""}},
      {"devices",
       "2,0",
       [](const O& o) {
         return o.devices == std::vector<int>{2, 0};
       },
       {"", "none", "0,", "0,0", "-1", "0;1"},
       {{"PHASOR_BACKEND", "cuda"}}},
      {"device-fault",
       "retry",
       [](const O& o) { return o.device_fault == "retry"; },
       {"ignore", ""}},
      {"threads", "3", [](const O& o) { return o.threads == 3; }, {"-1", "1025", "x", ""}},
      {"inline-bytes",
       "2MiB",
       [](const O& o) { return o.inline_bytes == 2 << 20; },
       {"-1", "2GiB"}},
      {"plan-cache-bytes",
       "7MiB",
       [](const O& o) { return o.plan_cache_bytes == 7 << 20; },
       {"-1", "2TiB", "x"}},
      {"pool-bytes", "1GiB", [](const O& o) { return o.pool_bytes == 1 << 30; }, {"2TiB", "x"}},
      {"max-message-bytes",
       "4MiB",
       [](const O& o) { return o.max_message_bytes == 4 << 20; },
       {"1023", "2GiB"}},
      {"max-header-bytes",
       "2KiB",
       [](const O& o) { return o.max_header_bytes == 2048; },
       {"1", "65MiB"}},
      {"max-inflight-bytes",
       "1GiB",
       [](const O& o) { return o.max_inflight_bytes == 1 << 30; },
       {"0", "2048TiB"}},
      {"max-metadata-bytes",
       "16KiB",
       [](const O& o) { return o.max_metadata_bytes == 16 << 10; },
       {"0", "2MiB"}},
      {"max-concurrent-streams",
       "9",
       [](const O& o) { return o.max_concurrent_streams == 9; },
       {"0", "2000000"}},
      {"max-connections", "9", [](const O& o) { return o.max_connections == 9; }, {"0", "-5"}},
      {"max-connections-per-peer",
       "9",
       [](const O& o) { return o.max_connections_per_peer == 9; },
       {"0", "99999999999"}},
      {"max-batch-items", "9", [](const O& o) { return o.max_batch_items == 9; }, {"0", "x"}},
      {"max-frame-bytes",
       "16777215",
       [](const O& o) { return o.max_frame_bytes == 16777215; },
       {"16MiB", "1KiB"}},
      {"stream-window-bytes",
       "256KiB",
       [](const O& o) { return o.stream_window_bytes == 256 << 10; },
       {"1KiB", "17MiB"}},
      {"max-connection-idle",
       "0",
       [](const O& o) { return o.max_connection_idle == absl::ZeroDuration(); },
       {"1ms", "-1s", "31h2"}},
      {"max-connection-age",
       "90s",
       [](const O& o) { return o.max_connection_age == absl::Seconds(90); },
       {"999ms", "800h"}},
      {"max-connection-age-grace",
       "1s",
       [](const O& o) { return o.max_connection_age_grace == absl::Seconds(1); },
       {"0", "25h"}},
      {"handshake-timeout",
       "250ms",
       [](const O& o) { return o.handshake_timeout == absl::Milliseconds(250); },
       {"0", "11m", "10"}},
      {"stream-idle-timeout",
       "9s",
       [](const O& o) { return o.stream_idle_timeout == absl::Seconds(9); },
       {"1ms", "soon"}},
      {"answer-timeout",
       "7s",
       [](const O& o) { return o.answer_timeout == absl::Seconds(7); },
       {"1ms", "25h"}},
      {"keepalive-time",
       "0",
       [](const O& o) { return o.keepalive_time == absl::ZeroDuration(); },
       {"1ms"}},
      {"keepalive-timeout",
       "5s",
       [](const O& o) { return o.keepalive_timeout == absl::Seconds(5); },
       {"0"}},
      {"drain-delay",
       "5s",
       [](const O& o) { return o.drain_delay == absl::Seconds(5); },
       {"-1s", "2h"}},
      {"drain-timeout",
       "0",
       [](const O& o) { return o.drain_timeout == absl::ZeroDuration(); },
       {"-1s", "inf"}},
      {"admin-listen",
       "127.0.0.1:1,unix:/admin",
       [](const O& o) {
         return o.admin_listen == std::vector<std::string>{"127.0.0.1:1", "unix:/admin"};
       },
       {"nowhere"}},
      {"metrics-listen",
       "127.0.0.1:9464",
       [](const O& o) { return o.metrics_listen == std::vector<std::string>{"127.0.0.1:9464"}; },
       {"nowhere", "unix:/m"}},
      {"log-every", "100", [](const O& o) { return o.log_every == 100; }, {"-1", "x"}},
      {"log-level", "debug", [](const O& o) { return o.log_level == "debug"; }, {"loud"}},
      {"lease-socket", "/lease", [](const O& o) { return o.lease_socket == "/lease"; }, {}},
      {"max-lease-bytes",
       "2TiB",
       [](const O& o) { return o.max_lease_bytes == int64_t{2} << 40; },
       {"1023", "2048TiB", "-1"}},
      {"max-leases", "7", [](const O& o) { return o.max_leases == 7; }, {"0", "10001"}},
      {"tables-dir", "/tables", [](const O& o) { return o.tables_dir == "/tables"; }, {}},
      {"max-table-bytes",
       "2KiB",
       [](const O& o) { return o.max_table_bytes == 2048; },
       {"1023", "2TiB", "x"}},
      {"max-tables-bytes",
       "3KiB",
       [](const O& o) { return o.max_tables_bytes == 3072; },
       {"1023", "17TiB", "x"}},
      {"shared-memory", "true", [](const O& o) { return o.shared_memory; }, {"maybe", ""}},
      {"max-region-bytes",
       "5KiB",
       [](const O& o) { return o.max_region_bytes == 5120; },
       {"1023", "2048TiB", "-1"}},
      {"max-regions", "7", [](const O& o) { return o.max_regions == 7; }, {"0", "1025"}},
      {"shared-memory-lease",
       "5s",
       [](const O& o) { return o.shared_memory_lease == absl::Seconds(5); },
       {"0", "31d"}},
      {"allow-plaintext", "true", [](const O& o) { return o.allow_plaintext; }, {"maybe", ""}},
      {"tls-cert",
       "/c",
       [](const O& o) { return o.tls_cert == "/c"; },
       {},
       {{"PHASOR_TLS_KEY", "/k"}}},
      {"tls-key",
       "/k",
       [](const O& o) { return o.tls_key == "/k"; },
       {},
       {{"PHASOR_TLS_CERT", "/c"}}},
      {"tls-client-ca",
       "/a",
       [](const O& o) { return o.tls_client_ca == "/a"; },
       {},
       {{"PHASOR_TLS_CERT", "/c"}, {"PHASOR_TLS_KEY", "/k"}}},
      {"tokens-file", "/t", [](const O& o) { return o.tokens_file == "/t"; }, {}},
      {"policy-file",
       "/p",
       [](const O& o) { return o.policy_file == "/p"; },
       {},
       {{"PHASOR_TOKENS_FILE", "/t"}}},
      {"credentials-reload-interval",
       "3s",
       [](const O& o) { return o.credentials_reload_interval == absl::Seconds(3); },
       {"0", "25h", "x"}},
      {"reflection", "false", [](const O& o) { return !o.reflection; }, {"maybe", ""}},
  };
  return *cases;
}

// The option in text format: numbers and switches are bare.
std::string FieldOf(const Case& c) {
  std::string field = c.name, value = c.text;
  for (char& letter : field) letter = letter == '-' ? '_' : letter;
  const auto& kind = FindOption(c.name)->value;
  const bool bare = std::holds_alternative<option_kinds::Count>(kind) ||
                    std::holds_alternative<option_kinds::Switch>(kind);
  return field + ": " + (bare ? value : '"' + value + '"');
}

using OptionsTest = testing::ServerCommandFixture;

TEST_F(OptionsTest, DefaultsAreValid) {
  EXPECT_TRUE(ServerOptions().Validate().ok());
  const auto command = Parse({});
  ASSERT_TRUE(command.ok());
  EXPECT_THAT(command->options.listen, ElementsAre("127.0.0.1:50051"));
  for (const Case& c : Cases()) EXPECT_FALSE(c.is_set(command->options)) << c.name;
}

TEST_F(OptionsTest, EveryOptionIsSetByFlag) {
  for (const Case& c : Cases()) {
    environment_ = c.needs;
    const auto joined = Parse({"--" + c.name + "=" + c.text});
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_TRUE(c.is_set(joined->options)) << c.name;
    if (c.name == "reflection" || c.name == "shared-memory" || c.name == "allow-plaintext") {
      continue;  // a switch takes no separate value
    }
    const auto separate = Parse({"--" + c.name, c.text});
    ASSERT_TRUE(separate.ok()) << separate.status();
    EXPECT_TRUE(c.is_set(separate->options)) << c.name;
  }
}

TEST_F(OptionsTest, EveryOptionIsSetByEnvironment) {
  for (const Case& c : Cases()) {
    environment_ = c.needs;
    environment_[VariableOf(c.name)] = c.text;
    const auto command = Parse({});
    ASSERT_TRUE(command.ok()) << command.status();
    EXPECT_TRUE(c.is_set(command->options)) << c.name;
  }
}

TEST_F(OptionsTest, EveryOptionIsSetByConfigFile) {
  std::string text = "# all of them\n\n";
  for (const Case& c : Cases()) text += FieldOf(c) + "  # so\n";
  const auto command = Parse({"--config", WriteConfig(text)});
  ASSERT_TRUE(command.ok()) << command.status();
  for (const Case& c : Cases()) EXPECT_TRUE(c.is_set(command->options)) << c.name;
}

TEST_F(OptionsTest, EveryRangeIsCheckedAndNamedInTheMessage) {
  for (const Case& c : Cases()) {
    for (const std::string& text : c.refused) {
      const auto command = Parse({"--" + c.name + "=" + text});
      EXPECT_EQ(command.status().code(), absl::StatusCode::kInvalidArgument) << c.name << text;
      EXPECT_THAT(command.status().message(), HasSubstr(c.name + ": ")) << text;
      EXPECT_THAT(command.status().message(), HasSubstr("accepted")) << text;
    }
  }
}

TEST_F(OptionsTest, HelpShowsEveryOptionWithItsVariable) {
  const auto command = Parse({"--help"});
  ASSERT_TRUE(command.ok());
  for (const Case& c : Cases()) {
    EXPECT_THAT(command->print, HasSubstr("--" + c.name + "  (" + VariableOf(c.name) + ")"));
  }
  EXPECT_THAT(command->print, HasSubstr("default 127.0.0.1:50051"));
  EXPECT_THAT(command->print, HasSubstr("16KiB to 16777215"));
  EXPECT_THAT(command->print, HasSubstr("75: the device was lost"));
  size_t options = 0;
  for (size_t at = 0; (at = command->print.find("default ", at)) != std::string::npos; ++at)
    ++options;
  EXPECT_EQ(options, Cases().size()) << "an option is missing in this test";
}

TEST_F(OptionsTest, PlaintextForOtherHostsMustBeAllowed) {
  for (const char* listen : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "host.example.org:1"}) {
    const auto refused = Parse({"--listen=127.0.0.1:1", StrCat("--listen=", listen)});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << listen;
    EXPECT_THAT(refused.status().message(), HasSubstr(StrCat("listen: '", listen, "'")));
    EXPECT_THAT(refused.status().message(), HasSubstr("set tls-cert and tls-key"));
    EXPECT_THAT(refused.status().message(), HasSubstr("allow-plaintext"));
    EXPECT_TRUE(Parse({StrCat("--listen=", listen), "--allow-plaintext"}).ok()) << listen;
    EXPECT_TRUE(Parse({StrCat("--listen=", listen), "--tls-cert=c", "--tls-key=k"}).ok()) << listen;
  }
  for (const char* listen : {"127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:/a"}) {
    EXPECT_TRUE(Parse({StrCat("--listen=", listen)}).ok()) << listen;
  }
}

TEST_F(OptionsTest, DevicesAreForBackendsThatUseSome) {
  for (const std::string backend : {"auto", "cuda"}) {
    EXPECT_TRUE(Parse({"--backend=" + backend, "--devices=1"}).ok()) << backend;
  }
  for (const std::string backend : {"cpu", "reference"}) {
    EXPECT_THAT(Parse({"--backend=" + backend, "--devices=1"}).status().message(),
                HasSubstr("devices: set with backend '" + backend + "', which uses none"));
    EXPECT_TRUE(Parse({"--backend=" + backend, "--devices=all"}).ok()) << backend;
  }
  EXPECT_THAT(Parse({"--devices=all"})->options.devices, ElementsAre());
  EXPECT_THAT(Parse({"--devices=1,1"}).status().message(),
              HasSubstr("devices: '1,1' is not accepted; accepted: all, or numbers, each once"));
}

TEST_F(OptionsTest, OptionsOfSecurityThatNeedOthersSaySo) {
  for (const auto& [flag, message] : std::map<std::string, std::string>{
           {"--tls-cert=c", "tls-cert: set without tls-key; set both"},
           {"--tls-key=k", "tls-key: set without tls-cert; set both"},
           {"--tls-client-ca=a", "tls-client-ca: set without tls-cert"},
           {"--policy-file=p", "policy-file: nobody has an identity"}}) {
    EXPECT_THAT(Parse({flag}).status().message(), HasSubstr(message)) << flag;
  }
}

}  // namespace
}  // namespace phasor
