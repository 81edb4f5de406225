// SPDX-License-Identifier: Apache-2.0
// Replaces certificates while calls and connections arrive: none fails, and new connections see the
// new certificate.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "phasor/v1/position_embedding_service.grpc.pb.h"
#include "server/telemetry/snapshot.h"
#include "tests/e2e/secure_server.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;

class RotationTest : public SecureServerTest {
 protected:
  // The certificate that a new connection is shown; empty: there was none.
  std::string Shown() const {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = dir_.Read("ca");
    options.pem_cert_chain = dir_.Read("client.pem");
    options.pem_private_key = dir_.Read("client.key");
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1::PositionEmbeddingService::NewStub(
        grpc::CreateCustomChannel(Target(), grpc::SslCredentials(options), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::GetServerInfoResponse response;
    if (!stub->GetServerInfo(&context, {}, &response).ok()) return "";
    const auto shown = context.auth_context()->FindPropertyValues("x509_pem_cert");
    return shown.empty() ? "" : std::string(shown[0].data(), shown[0].size());
  }

  // Calls without pause; the second half of the workers each over a new connection.
  void Load() {
    for (int i = 0; i < 4; ++i) {
      workers_.emplace_back([this, reconnects = i >= 2] {
        const ClientOptions options = {.max_attempts = 1, .tls = Certified()};
        absl::StatusOr<Client> client = Client::Connect(Target(), options);
        while (!stop_.load()) {
          if (reconnects) client = Client::Connect(Target(), options);
          const absl::Status status = client->GetServerInfo().status();
          calls_.fetch_add(1);
          if (!status.ok() && failed_.fetch_add(1) == 0) ADD_FAILURE() << status;
        }
      });
    }
  }
  void EndLoad() {
    stop_.store(true);
    for (std::thread& worker : workers_) worker.join();
  }

  std::vector<std::thread> workers_;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> calls_ = 0;
  std::atomic<int64_t> failed_ = 0;
};

TEST_F(RotationTest, UnderLoadNoCallFailsAndNewConnectionsSeeTheNewCertificate) {
  UseTls(/*client_certificates=*/true);
  Start();
  Load();
  for (int round = 0; round < 2; ++round) {
    const int64_t before = calls_.load();
    const auto next = authority_.Issue("IP:127.0.0.1");
    Replace("server", next);
    EXPECT_TRUE(Eventually([&] { return Shown() == next.certificate; })) << "round " << round;
    EXPECT_TRUE(Eventually([&] { return calls_.load() > before + 100; }));
  }
  EndLoad();
  EXPECT_EQ(failed_.load(), 0) << "of " << calls_.load();
  RecordProperty("calls", static_cast<int>(calls_.load()));
  EXPECT_EQ(server_->security_stats().tls_handshakes_failed, 0);
}

TEST_F(RotationTest, ABadFileKeepsTheOldCertificateAndIsLogged) {
  UseTls(/*client_certificates=*/true);
  Start();
  const std::string first = Shown();
  EXPECT_FALSE(first.empty());
  Rename("server.pem", "no certificate");
  EXPECT_FALSE(server_->ReloadCredentials().ok());
  EXPECT_EQ(Shown(), first);
  const auto next = authority_.Issue("IP:127.0.0.1");
  Replace("server", next);
  EXPECT_TRUE(Eventually([&] { return Shown() == next.certificate; }));
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr("\"event\":\"credentials kept as they were\""));
  EXPECT_THAT(log, HasSubstr("tls-cert: "));
}

TEST_F(RotationTest, AClientTakesItsOwnNewCertificateWithoutBeingMadeAnew) {
  UseTls(/*client_certificates=*/true);
  testing::CertificateAuthority other("other root");
  Replace("mine", other.Issue("URI:spiffe://test/client"));
  Start();
  const auto client = Client::Connect(Target(), {.max_attempts = 1, .tls = Certified("mine")});
  ASSERT_THAT(client, IsOk());
  EXPECT_FALSE(client->GetServerInfo().ok());
  Replace("mine", authority_.Issue("URI:spiffe://test/client"));
  EXPECT_TRUE(Eventually([&] { return client->GetServerInfo().ok(); }));
}

TEST_F(RotationTest, ClientsOfANewAuthorityAreTakenAfterItsFileIsReplaced) {
  UseTls(/*client_certificates=*/true);
  options_.tls_client_ca = Path("clients");
  dir_.Write("clients", authority_.certificate());
  testing::CertificateAuthority other("next root");
  Replace("next", other.Issue("URI:spiffe://test/next"));
  Start();
  EXPECT_FALSE(CallOnce(Target(), {.tls = Certified("next")}).ok());
  Rename("clients", authority_.certificate() + other.certificate());
  EXPECT_TRUE(Eventually([&] { return CallOnce(Target(), {.tls = Certified("next")}).ok(); }));
  EXPECT_THAT(CallOnce(Target(), {.tls = Certified()}), IsOk());
}

}  // namespace
}  // namespace phasor
