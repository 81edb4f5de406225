// SPDX-License-Identifier: Apache-2.0
// Tests who gets a connection: TLS and mTLS between a real server and the client library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <csignal>

#include "server/telemetry/snapshot.h"
#include "tests/e2e/secure_server.h"
#include "tests/support/http2_frames.h"
#include "tests/support/run_shell.h"
#include "tests/support/socket_client.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr char kUntrusted[] = "its certificate has expired or has an unknown authority";
constexpr char kEnded[] = "it ended the connection";

// Clients that are refused are processes of their own: gRPC tells both sides' failures to the log
// of the process, and those of the server are counted from there.
class TlsTest : public SecureServerTest {
 protected:
  int64_t Failed() const { return server_->security_stats().tls_handshakes_failed; }
  std::string Ca(const std::string& file) const { return StrCat(" --ca ", Path(file)); }
  std::string Certificate(const std::string& name) const {
    return StrCat(Ca("ca"), " --cert ", Path(name + ".pem"), " --key ", Path(name + ".key"));
  }

  // The connection does not come about, the client says why in one line, and the server counts it.
  void ExpectRefused(const std::string& flags, const std::string& why) {
    const int64_t before = Failed();
    const testing::ShellOutcome outcome = testing::RunShell(
        StrCat(PHASOR_BINARY, " presets --timeout 20 --server 127.0.0.1:", port_, flags));
    EXPECT_EQ(outcome.status, 1) << flags;
    EXPECT_THAT(outcome.text, StartsWith("phasor: UNAVAILABLE: server: " + why)) << flags;
    EXPECT_EQ(std::count(outcome.text.begin(), outcome.text.end(), '\n'), 1) << outcome.text;
    EXPECT_TRUE(Eventually([&] { return Failed() > before; })) << "not counted: " << flags;
  }
  void ExpectServed(const ClientOptions& options) {
    EXPECT_THAT(CallOnce(Target(), options), IsOk());
  }
};

TEST_F(TlsTest, ServesWhoTrustsItsCertificate) {
  UseTls(/*client_certificates=*/false);
  Start();
  EXPECT_THAT(CallOnce(Target(), {.tls = Trusting()}), IsOk());
  EXPECT_THAT(CallOnce(StrCat("dns:///localhost:", port_), {.tls = Trusting()}), IsOk());
  EXPECT_THAT(Log(), HasSubstr("\"event\":\"TLS certificate\""));
}

TEST_F(TlsTest, UnixSocketsStayPlaintext) {
  UseTls(/*client_certificates=*/true);
  Start();
  EXPECT_THAT(CallOnce(StrCat("unix:", Path("socket")), {}), IsOk());
}

TEST_F(TlsTest, ClientsThatDoNotTrustItAreCountedAndLogged) {
  UseTls(/*client_certificates=*/false);
  Start();
  testing::CertificateAuthority other("other root");
  dir_.Write("other", other.certificate());
  ExpectRefused(Ca("other"), kUntrusted);
  ExpectServed({.tls = Trusting()});
  ExpectRefused(Ca("ca") + " --server-name other.test", "its certificate has another name");
  ExpectServed({.tls = Trusting()});
  const std::string log = Log();
  // gRPC's client hangs up without an alert.
  EXPECT_THAT(log, HasSubstr("\"event\":\"TLS handshake failed\",\"reason\":\"the peer hung up: "));
  EXPECT_THAT(log, HasSubstr("the certificate is not for the name that the client asked for"));
}

TEST_F(TlsTest, ClientsSeeThatACertificateHasExpired) {
  UseTls(/*client_certificates=*/false);
  Replace("server", authority_.Issue("IP:127.0.0.1", -60));
  Start();
  ExpectRefused(Ca("ca"), kUntrusted);
  EXPECT_THAT(CallOnce(StrCat("unix:", Path("socket")), {}), IsOk());
  EXPECT_THAT(Log(), HasSubstr("the peer hung up"));
}

TEST_F(TlsTest, PlaintextToItsPortIsRefusedCountedAndLogged) {
  UseTls(/*client_certificates=*/false);
  Start();
  ExpectRefused("", kEnded);
  ExpectServed({.tls = Trusting()});
  EXPECT_THAT(Log(), HasSubstr("wrong version number"));
}

TEST_F(TlsTest, ClientCertificatesMustBeThereValidAndOfTheAuthority) {
  UseTls(/*client_certificates=*/true);
  testing::CertificateAuthority other("other root");
  Replace("stranger", other.Issue("URI:spiffe://test/client"));
  Replace("expired", authority_.Issue("URI:spiffe://test/client", -60));
  Start();
  ExpectServed({.tls = Certified()});
  for (const std::string& flags : {Ca("ca"), Certificate("stranger"), Certificate("expired")}) {
    ExpectRefused(flags, kEnded);
    ExpectServed({.tls = Certified()});
  }
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("peer did not return a certificate"));
  EXPECT_THAT(log, HasSubstr("certificate verify failed"));
  EXPECT_THAT(log, Not(HasSubstr("PRIVATE KEY")));
}

TEST_F(TlsTest, ThePolicyKnowsClientsByTheirNames) {
  UseTls(/*client_certificates=*/true);
  options_.policy_file = Path("policy");
  dir_.Write("policy", R"({"identities": [{"identity": "san:client.test",
      "methods": ["phasor.v1.PositionEmbeddingService/GetServerInfo"]}]})");
  Replace("other", authority_.Issue("URI:spiffe://test/other"));
  Start();
  EXPECT_THAT(CallOnce(Target(), {.tls = Certified()}), IsOk());
  EXPECT_THAT(CallOnce(Target(), {.tls = Certified("other")}),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("san:spiffe://test/other")));
  EXPECT_THAT(CallOnce(StrCat("unix:", Path("socket")), {}),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("unix may not call")));
  EXPECT_EQ(server_->security_stats().permission_denied, 2);
  EXPECT_EQ(server_->security_stats().unauthenticated, 0);
  EXPECT_THAT(Log(), HasSubstr("\"code\":\"PERMISSION_DENIED\""));
}

// Whoever may get a certificate for a host must not become a service by it.
TEST_F(TlsTest, ANameOfAnotherTypeIsNobody) {
  UseTls(/*client_certificates=*/true);
  options_.policy_file = Path("policy");
  dir_.Write("policy", R"({"identities": [
      {"identity": "san:spiffe://test/client", "methods": ["*"]},
      {"identity": "san:client.example.org", "methods": ["*"]},
      {"identity": "san:client@example.org", "methods": ["*"]}]})");
  Start();
  int number = 0;
  for (const char* name :
       {"URI:spiffe://test/client", "DNS:client.example.org", "email:client@example.org"}) {
    const std::string file = StrCat("good", number++);
    Replace(file, authority_.Issue(name));
    EXPECT_THAT(CallOnce(Target(), {.tls = Certified(file)}), IsOk()) << name;
  }
  for (const char* name :
       {"DNS:spiffe://test/client", "email:spiffe://test/client", "URI:client.example.org",
        "email:client.example.org", "URI:client@example.org", "DNS:client@example.org"}) {
    const std::string file = StrCat("bad", number++);
    Replace(file, authority_.Issue(name));
    EXPECT_THAT(CallOnce(Target(), {.tls = Certified(file)}),
                StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("without a name")))
        << name;
  }
}

// The filter of frames reads what TLS has decrypted.
TEST_F(TlsTest, EndlessHeadersEndTheConnection) {
  std::signal(SIGPIPE, SIG_IGN);
  UseTls(/*client_certificates=*/false);
  Start();
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), &SSL_free);
  const FileDescriptor fd = ConnectTo(Target());
  const unsigned char h2[] = {2, 'h', '2'};
  ASSERT_EQ(SSL_set_alpn_protos(ssl.get(), h2, sizeof(h2)), 0);
  ASSERT_EQ(SSL_set_fd(ssl.get(), fd.get()), 1);
  ASSERT_EQ(SSL_connect(ssl.get()), 1);
  const std::string hello = std::string(testing::kHello) + testing::CallHeaders(0);
  ASSERT_GT(SSL_write(ssl.get(), hello.data(), static_cast<int>(hello.size())), 0);
  const std::string more =
      testing::Frame(testing::FrameType::kContinuation, 0, std::string(16000, '\x83'));
  constexpr int kFrames = 10000;  // 160 MB
  int frames = 0;
  while (frames < kFrames && SSL_write(ssl.get(), more.data(), static_cast<int>(more.size())) > 0) {
    ++frames;
  }
  EXPECT_LT(frames, kFrames);
  ExpectServed({.tls = Trusting()});
  EXPECT_THAT(Log(), HasSubstr("headers that do not end"));
}

TEST_F(TlsTest, DoesNotStartWithABadFileAndSaysWhich) {
  UseTls(/*client_certificates=*/true);
  dir_.Write("server.key", authority_.Issue("DNS:localhost").key);
  EXPECT_THAT(Server::Start(options_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tls-key: ")));
}

}  // namespace
}  // namespace phasor
