// SPDX-License-Identifier: Apache-2.0
// Loads and reloads TLS files for gRPC. gRPC 1.51 reads the key and then the certificate, and
// repeats that if a file's modification time in seconds has changed meanwhile. Here both are in one
// file, a new version follows the old one at once, and each version's time differs by a second. So
// gRPC can never read parts of two versions.
#include "server/grpc/tls_credentials.h"

#include <fcntl.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/crypto.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/security/credential_file.h"

namespace phasor::rpc {
namespace {

constexpr unsigned kWatchSeconds = 1;  // the minimum that gRPC accepts

// Before anything uses OpenSSL: it stays usable until the process ends. Threads of gRPC may outlive
// main(), and OpenSSL's exit handler would leak or take away what they hold.
[[maybe_unused]] const int kOpenSslStays = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);

bool WriteAll(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(fd, text.data() + written, text.size() - written);
    if (n <= 0) return false;
    written += static_cast<size_t>(n);
  }
  return true;
}

std::shared_ptr<grpc::ServerCredentials> MakeCredentials(const std::string& identity_path,
                                                         const std::string& client_ca_path) {
  using grpc::experimental::FileWatcherCertificateProvider;
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(identity_path, identity_path, client_ca_path,
                                                       kWatchSeconds));
  options.watch_identity_key_cert_pairs();
  if (!client_ca_path.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace

absl::Status MemoryFile::Replace(const std::string& text) {
  FileDescriptor fd(memfd_create("phasor-tls", MFD_CLOEXEC));
  if (!fd.valid())
    return absl::InternalError("tls: no file in memory can be made; memfd_create must be allowed");
  const timespec time = {++version_, 0};
  const timespec times[2] = {time, time};
  if (!WriteAll(fd.get(), text) || futimens(fd.get(), times) != 0 ||
      (fd_.valid() && dup3(fd.get(), fd_.get(), O_CLOEXEC) < 0)) {
    return absl::InternalError("tls: no memory for certificates; give the server more");
  }
  if (!fd_.valid()) fd_ = std::move(fd);  // otherwise fd_ refers to the file already
  return absl::OkStatus();
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", fd_.get()); }

absl::StatusOr<std::unique_ptr<TlsCredentials>> TlsCredentials::Load(
    const security::TlsPaths& paths) {
  std::unique_ptr<TlsCredentials> tls(new TlsCredentials(paths));
  PHASOR_RETURN_IF_ERROR(tls->Reload());
  absl::MutexLock lock(&tls->mu_);
  if (access(tls->identity_.path().c_str(), R_OK) != 0) {
    return absl::InternalError("tls: cannot read /proc/self/fd; mount /proc for TLS");
  }
  tls->credentials_ =
      MakeCredentials(tls->identity_.path(), paths.client_ca.empty() ? "" : tls->client_ca_.path());
  return tls;
}

absl::Status TlsCredentials::Reload() {
  absl::MutexLock lock(&mu_);
  // Take the stamps before reading the files, so that a write in between counts as a change.
  stamps_ = Stamps();
  PHASOR_ASSIGN_OR_RETURN(security::TlsMaterial material, security::ReadTlsFiles(paths_));
  if (material.client_ca != material_.client_ca) {
    PHASOR_RETURN_IF_ERROR(client_ca_.Replace(material.client_ca));
  }
  if (material.identity != material_.identity) {
    PHASOR_RETURN_IF_ERROR(identity_.Replace(material.identity));
  }
  material_ = std::move(material);
  return absl::OkStatus();
}

bool TlsCredentials::Changed() const {
  const std::vector<FileStamp> now = Stamps();
  absl::MutexLock lock(&mu_);
  return now != stamps_;
}

std::vector<FileStamp> TlsCredentials::Stamps() const {
  return security::StampsOf({paths_.certificate, paths_.key, paths_.client_ca});
}

absl::Time TlsCredentials::not_after() const {
  absl::MutexLock lock(&mu_);
  return material_.not_after;
}

std::string TlsCredentials::serial() const {
  absl::MutexLock lock(&mu_);
  return material_.serial;
}

}  // namespace phasor::rpc
