// SPDX-License-Identifier: Apache-2.0
// Tests files in memory and their versions, and which certificates are taken over or kept.
// tests/e2e has the rest.
#include "server/grpc/tls_credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/support/certificates.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace phasor::rpc {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

std::string Rest(std::ifstream& file) { return {std::istreambuf_iterator<char>(file), {}}; }

int64_t ModifiedSeconds(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return info.st_mtim.tv_sec;
}

TEST(MemoryFileTest, IsReplacedAsAWholeUnderOnePath) {
  MemoryFile file;
  ASSERT_THAT(file.Replace("one"), IsOk());
  const std::string path = file.path();
  std::ifstream opened(path);
  const int64_t before = ModifiedSeconds(path);
  ASSERT_THAT(file.Replace("two, longer"), IsOk());
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(Rest(opened), "one");
  std::ifstream again(path);
  EXPECT_EQ(Rest(again), "two, longer");
  EXPECT_NE(ModifiedSeconds(path), before) << "gRPC could not tell the versions apart";
}

class TlsCredentialsTest : public ::testing::Test {
 protected:
  TlsCredentialsTest() { Write(authority_.Issue("DNS:a")); }
  void Write(const testing::CertificateAndKey& pair) {
    dir_.Write("cert", pair.certificate);
    dir_.Write("key", pair.key);
  }
  const testing::TempDir dir_;
  testing::CertificateAuthority authority_{"root"};
  const security::TlsPaths paths_ = {dir_.path() + "/cert", dir_.path() + "/key", ""};
};

TEST_F(TlsCredentialsTest, TakesNewCertificatesAndKeepsTheOldOneOfABadFile) {
  const auto tls = TlsCredentials::Load(paths_);
  ASSERT_THAT(tls, IsOk());
  EXPECT_NE((*tls)->credentials(), nullptr);
  const std::string serial = (*tls)->serial();
  EXPECT_FALSE((*tls)->Changed());
  const auto next = authority_.Issue("DNS:a", 7200);
  dir_.Write("cert", next.certificate);
  EXPECT_TRUE((*tls)->Changed());
  EXPECT_THAT((*tls)->Reload(), StatusIs(testing::kInvalid, HasSubstr("tls-key: ")));
  EXPECT_EQ((*tls)->serial(), serial);
  const absl::Time not_after = (*tls)->not_after();
  dir_.Write("key", next.key);
  EXPECT_THAT((*tls)->Reload(), IsOk());
  EXPECT_NE((*tls)->serial(), serial);
  EXPECT_GT((*tls)->not_after(), not_after);
}

TEST_F(TlsCredentialsTest, DoesNotBeginWithABadFile) {
  dir_.Write("cert", "x");
  EXPECT_THAT(TlsCredentials::Load(paths_), StatusIs(testing::kInvalid, HasSubstr("tls-cert: ")));
}

// Exit handlers run last registered first: OpenSSL's would be registered after this one. What has
// been initialised before is answered without a look, so another part is asked for.
void EndByWhetherOpenSslIsUsable() {
  std::atexit(
      [] { _exit(OPENSSL_init_crypto(OPENSSL_INIT_ADD_ALL_DIGESTS, nullptr) == 1 ? 7 : 8); });
  OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CRYPTO_STRINGS, nullptr);
  std::exit(9);
}

TEST(OpenSslTest, IsUsableAfterMain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(EndByWhetherOpenSslIsUsable(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace phasor::rpc
