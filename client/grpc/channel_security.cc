// SPDX-License-Identifier: Apache-2.0
// Makes TLS credentials, and adds the token to every call. An interceptor adds it, to unary calls
// and streams alike, because gRPC's call credentials refuse plaintext even to this host.
#include "client/grpc/channel_security.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/client_interceptor.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/base/internal/cycleclock.h"
#include "absl/strings/ascii.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "kernels/base/text.h"

namespace phasor::client_internal {
namespace {

constexpr unsigned kWatchSeconds = 1;  // between looks at certificates; gRPC's minimum
constexpr absl::Duration kTokenAge = absl::Seconds(1);
constexpr size_t kMaxTokenBytes = 4096;

// When threads first queue for a mutex, Abseil looks for a file that says how fast the processor
// is, and leaves its error in errno. gRPC takes a mutex between connect() and reading errno, so a
// connection could end with "No such file or directory". Looks for the file now, once.
void KeepErrnoOfConnections() {
  [[maybe_unused]] static const double known = absl::base_internal::CycleClock::Frequency();
}

absl::StatusOr<std::string> ReadText(std::string_view option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.is_open() && !file.bad() && !text.empty()) return text;
  return InvalidAt(option, "\"", path, "\" cannot be read or is empty; must be a file");
}

absl::Status CheckPem(std::string_view option, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  PHASOR_ASSIGN_OR_RETURN(const std::string text, ReadText(option, path));
  if (text.find("-----BEGIN ") != text.npos) return absl::OkStatus();
  return InvalidAt(option, "\"", path, "\" is not PEM; must be PEM");
}

// Errors do not quote the token: a wrong one may be nearly right.
absl::Status CheckToken(std::string_view option, const std::string& token) {
  const bool visible =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (visible && !token.empty() && token.size() <= kMaxTokenBytes) return absl::OkStatus();
  return InvalidAt(option, "not a token; must be 1 to ", kMaxTokenBytes,
                   " visible characters of ASCII without spaces");
}

std::shared_ptr<grpc::ChannelCredentials> MakeTls(const TlsOptions& tls) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  if (!tls.ca_file.empty() || !tls.cert_file.empty()) {
    options.set_certificate_provider(
        std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
            tls.key_file, tls.cert_file, tls.ca_file, kWatchSeconds));
  }
  if (!tls.ca_file.empty()) options.watch_root_certs();
  if (!tls.cert_file.empty()) options.watch_identity_key_cert_pairs();
  return grpc::experimental::TlsCredentials(options);
}

class AddToken final : public grpc::experimental::Interceptor {
 public:
  explicit AddToken(std::shared_ptr<TokenSource> source) : source_(std::move(source)) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization",
                                                 StrCat("Bearer ", source_->Token(SteadyNow())));
    }
    methods->Proceed();
  }

 private:
  const std::shared_ptr<TokenSource> source_;
};

class AddsTokens final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit AddsTokens(std::shared_ptr<TokenSource> source) : source_(std::move(source)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new AddToken(source_);
  }

 private:
  const std::shared_ptr<TokenSource> source_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<TokenSource>> TokenSource::Make(const ClientOptions& options) {
  std::shared_ptr<TokenSource> source(new TokenSource(options.token_file));
  std::lock_guard lock(source->mutex_);
  if (options.token_file.empty()) {
    PHASOR_RETURN_IF_ERROR(CheckToken("token", options.token));
    source->token_ = options.token;
  } else {
    PHASOR_RETURN_IF_ERROR(source->Read());
    source->looked_ = SteadyNow();
  }
  return source;
}

std::string TokenSource::Token(absl::Time now) {
  std::lock_guard lock(mutex_);
  if (!path_.empty() && now - looked_ > kTokenAge) {
    looked_ = now;
    (void)Read();
  }
  return token_;
}

absl::Status TokenSource::Read() {
  PHASOR_ASSIGN_OR_RETURN(std::string token, ReadText("token_file", path_));
  absl::StripAsciiWhitespace(&token);
  PHASOR_RETURN_IF_ERROR(CheckToken("token_file", token));
  token_ = std::move(token);
  return absl::OkStatus();
}

absl::StatusOr<ChannelSecurity> ChannelSecurity::Make(const ClientOptions& options, bool this_host,
                                                      bool unix_socket) {
  ChannelSecurity security;
  if (options.tls.has_value()) {
    const TlsOptions& tls = *options.tls;
    if (unix_socket) {
      return Invalid("tls: set for a Unix socket, which is plaintext; must be unset");
    }
    PHASOR_RETURN_IF_ERROR(CheckPem("tls.ca_file", tls.ca_file));
    PHASOR_RETURN_IF_ERROR(CheckPem("tls.cert_file", tls.cert_file));
    PHASOR_RETURN_IF_ERROR(CheckPem("tls.key_file", tls.key_file));
    security.tls_ = MakeTls(tls);
    security.server_name_ = tls.server_name;
  }
  if (options.token.empty() && options.token_file.empty()) return security;
  if (!options.tls.has_value() && !this_host && !options.token_over_plaintext) {
    return Invalid(
        "token: would be sent in plaintext to another host; set tls, or token_over_plaintext if "
        "the network is trusted");
  }
  PHASOR_ASSIGN_OR_RETURN(security.token_, TokenSource::Make(options));
  return security;
}

std::shared_ptr<grpc::Channel> ChannelSecurity::Connect(const std::string& target,
                                                        grpc::ChannelArguments arguments) const {
  KeepErrnoOfConnections();
  if (!server_name_.empty()) arguments.SetSslTargetNameOverride(server_name_);
  const auto credentials = tls_ == nullptr ? grpc::InsecureChannelCredentials() : tls_;
  if (token_ == nullptr) return grpc::CreateCustomChannel(target, credentials, arguments);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> creators;
  creators.push_back(std::make_unique<AddsTokens>(token_));
  return grpc::experimental::CreateCustomChannelWithInterceptors(target, credentials, arguments,
                                                                 std::move(creators));
}

}  // namespace phasor::client_internal
