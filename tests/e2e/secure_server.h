// SPDX-License-Identifier: Apache-2.0
// A server with certificates, tokens and a policy in its own directory, and clients of it.
#ifndef PHASOR_TESTS_E2E_SECURE_SERVER_H_
#define PHASOR_TESTS_E2E_SECURE_SERVER_H_

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "client/client.h"
#include "kernels/base/text.h"
#include "server/base/log.h"
#include "server/server.h"
#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_dir.h"

namespace phasor {

using testing::Eventually;

// Catches what the server logs from Start on.
class SecureServerTest : public ::testing::Test {
 protected:
  SecureServerTest() {
    options_.listen = {"127.0.0.1:0", StrCat("unix:", Path("socket"))};
    options_.threads = 2;
    options_.credentials_reload_interval = absl::Milliseconds(100);
    dir_.Write("ca", authority_.certificate());
    Replace("server", authority_.Issue("DNS:localhost,IP:127.0.0.1"));
    Replace("client", authority_.Issue("URI:spiffe://test/client,DNS:client.test"));
  }
  ~SecureServerTest() override {
    server_.reset();
    if (capturing_) (void)::testing::internal::GetCapturedStderr();
  }

  std::string Path(const std::string& file) const { return StrCat(dir_.path(), "/", file); }
  // Writes NAME.pem and NAME.key, each by renaming, as tools that rotate do.
  void Replace(const std::string& name, const testing::CertificateAndKey& pair) {
    Rename(name + ".key", pair.key);
    Rename(name + ".pem", pair.certificate);
  }
  void Rename(const std::string& file, const std::string& text) {
    dir_.Write(file + ".new", text);
    std::filesystem::rename(Path(file + ".new"), Path(file));
  }

  void UseTls(bool client_certificates) {
    options_.tls_cert = Path("server.pem");
    options_.tls_key = Path("server.key");
    if (client_certificates) options_.tls_client_ca = Path("ca");
  }
  void Start() {
    capturing_ = true;
    ::testing::internal::CaptureStderr();
    SetLogLevel(LogLevel::kDebug);
    auto server = Server::Start(options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = server_->listeners()[0].substr(server_->listeners()[0].rfind(':') + 1);
  }
  // Stops the server.
  std::string Log() {
    server_.reset();
    capturing_ = false;
    return ::testing::internal::GetCapturedStderr();
  }

  std::string Target() const { return StrCat("127.0.0.1:", port_); }
  TlsOptions Trusting() const { return {.ca_file = Path("ca")}; }
  TlsOptions Certified(const std::string& name = "client") const {
    return {
        .ca_file = Path("ca"), .cert_file = Path(name + ".pem"), .key_file = Path(name + ".key")};
  }
  // One attempt, soon given up.
  static absl::Status CallOnce(const std::string& target, ClientOptions options) {
    options.max_attempts = 1;
    options.timeout = absl::Seconds(20);
    const auto client = Client::Connect(target, options);
    return client.ok() ? client->GetServerInfo().status() : client.status();
  }

  const testing::TempDir dir_;
  testing::CertificateAuthority authority_{"root"};
  ServerOptions options_;
  std::unique_ptr<Server> server_;
  std::string port_;
  bool capturing_ = false;
};

}  // namespace phasor

#endif  // PHASOR_TESTS_E2E_SECURE_SERVER_H_
