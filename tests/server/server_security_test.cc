// SPDX-License-Identifier: Apache-2.0
// Tests credential files: those that a server starts with, and those that it takes over later.
#include "server/server_security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/time/clock.h"
#include "kernels/base/sha256.h"
#include "kernels/base/text.h"
#include "server/base/log.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::kInvalid;
using testing::StatusIs;

class ServerSecurityTest : public ::testing::Test {
 protected:
  ServerSecurityTest() {
    SetLogLevel(LogLevel::kOff);
    options_.credentials_reload_interval = absl::Hours(1);
    const auto pair = authority_.Issue("DNS:localhost");
    dir_.Write("cert", pair.certificate);
    dir_.Write("key", pair.key);
    dir_.Write("ca", authority_.certificate());
    dir_.Write("tokens", StrCat("ci sha256:", Sha256Hex(std::string(64, 't')), "\n"));
    dir_.Write("policy", "{\"identities\": [{\"identity\": \"*\", \"methods\": [\"*\"]}]}");
  }
  std::string Path(const char* file) const { return StrCat(dir_.path(), "/", file); }
  void UseTls() {
    options_.tls_cert = Path("cert");
    options_.tls_key = Path("key");
  }
  absl::StatusOr<std::unique_ptr<ServerSecurity>> Load() {
    const std::vector<std::string> services = {"phasor.v1.TableService"};
    return ServerSecurity::Load(options_, services);
  }

  const testing::TempDir dir_;
  testing::CertificateAuthority authority_{"root"};
  ServerOptions options_;
};

TEST_F(ServerSecurityTest, WithoutOptionsThereIsNothing) {
  const auto security = Load();
  ASSERT_THAT(security, IsOk());
  EXPECT_EQ((*security)->credentials(), nullptr);
  EXPECT_EQ((*security)->access(), nullptr);
  EXPECT_THAT((*security)->Reload(), IsOk());
}

TEST_F(ServerSecurityTest, EveryWrongFileIsNamedByItsOption) {
  UseTls();
  options_.tls_client_ca = Path("ca");
  options_.tokens_file = Path("tokens");
  options_.policy_file = Path("policy");
  ASSERT_THAT(Load(), IsOk());
  for (const auto& [file, option] : {std::pair{"cert", "tls-cert: "},
                                     {"key", "tls-key: "},
                                     {"ca", "tls-client-ca: "},
                                     {"tokens", "tokens-file: "},
                                     {"policy", "policy-file: "}}) {
    const std::string good = dir_.Read(file);
    dir_.Write(file, "not at all");
    EXPECT_THAT(Load(), StatusIs(kInvalid, HasSubstr(option)));
    std::filesystem::remove(Path(file));
    EXPECT_THAT(Load(), StatusIs(kInvalid, HasSubstr(option)));
    dir_.Write(file, good);
  }
}

TEST_F(ServerSecurityTest, ReloadReadsAllAndSaysWhatIsWrong) {
  UseTls();
  options_.tokens_file = Path("tokens");
  const auto security = Load();
  ASSERT_THAT(security, IsOk());
  EXPECT_THAT((*security)->Reload(), IsOk());
  dir_.Write("key", authority_.Issue("DNS:localhost").key);
  EXPECT_THAT((*security)->Reload(), StatusIs(kInvalid, HasSubstr("tls-key: ")));
  dir_.Write("tokens", "x");
  EXPECT_THAT((*security)->Reload(), StatusIs(kInvalid, HasSubstr("tls-key: ")));
}

TEST_F(ServerSecurityTest, EndsAtOnceHoweverLongTheInterval) {
  UseTls();
  const absl::Time start = absl::Now();
  { ASSERT_THAT(Load(), IsOk()); }
  EXPECT_LT(absl::Now() - start, absl::Minutes(1));
}

}  // namespace
}  // namespace phasor
