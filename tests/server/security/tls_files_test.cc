// SPDX-License-Identifier: Apache-2.0
// Tests which files of certificates and keys are accepted, and the errors for the others.
#include "server/security/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::security {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() {
    dir_.Write("ca", authority_.certificate());
    Write(mine_);
  }
  void Write(const testing::CertificateAndKey& pair) {
    dir_.Write("cert", pair.certificate);
    dir_.Write("key", pair.key);
  }
  absl::StatusOr<TlsMaterial> Read() {
    return ReadTlsFiles({dir_.path() + "/cert", dir_.path() + "/key", dir_.path() + "/ca"});
  }
  void ExpectRefused(const std::string& message) {
    EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }

  const testing::TempDir dir_;
  testing::CertificateAuthority authority_{"root"};
  const testing::CertificateAndKey mine_ = authority_.Issue("DNS:a");
};

TEST_F(TlsFilesTest, ReadsACertificateWithItsChainAndKey) {
  dir_.Write("cert", "text before\n" + mine_.certificate + authority_.certificate());
  const auto material = Read();
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_THAT(material->identity, HasSubstr(mine_.certificate + authority_.certificate()));
  EXPECT_THAT(material->identity, HasSubstr("PRIVATE KEY"));
  EXPECT_EQ(material->client_ca, authority_.certificate());
  EXPECT_GT(material->not_after, absl::Now());
  EXPECT_EQ(material->serial, "02");
}

TEST_F(TlsFilesTest, OneFileMayHoldBoth) {
  dir_.Write("cert", mine_.key + mine_.certificate);
  dir_.Write("key", mine_.key + mine_.certificate);
  const auto material = Read();
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_EQ(material->identity, mine_.key + mine_.certificate);
}

TEST_F(TlsFilesTest, WrongFilesAreNamedByTheirOption) {
  dir_.Write("key", authority_.Issue("DNS:a").key);
  ExpectRefused("key' is not the key of the first certificate of --tls-cert; must be");
  dir_.Write("key", "x");
  ExpectRefused("tls-key: ");
  dir_.Write("key", testing::CertificateAuthority::EncryptedKey());
  ExpectRefused("key' is encrypted");
  Write(mine_);
  dir_.Write("cert", "");
  ExpectRefused("tls-cert: ");
  dir_.Write("cert", mine_.certificate + mine_.certificate.substr(0, 200));
  ExpectRefused("cert' has a certificate that cannot be read");
  Write(mine_);
  dir_.Write("ca", mine_.key);
  ExpectRefused("tls-client-ca: ");
}

TEST_F(TlsFilesTest, AnExpiredCertificateIsTakenAndTellsWhen) {
  Write(authority_.Issue("DNS:a", -60));
  const auto material = Read();
  ASSERT_TRUE(material.ok()) << material.status();
  EXPECT_LT(material->not_after, absl::Now());
}

}  // namespace
}  // namespace phasor::security
