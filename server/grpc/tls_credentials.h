// SPDX-License-Identifier: Apache-2.0
// TLS credentials for gRPC, from files that may be replaced while the server runs.
#ifndef PHASOR_SERVER_GRPC_TLS_CREDENTIALS_H_
#define PHASOR_SERVER_GRPC_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/base/file_descriptor.h"
#include "server/base/file_stamp.h"
#include "server/security/tls_files.h"

namespace phasor::rpc {

// A file in memory only, which is replaced as a whole. Threads: one that writes.
class MemoryFile {
 public:
  // Replaces the content. A reader that opened the file before keeps reading the old version. Each
  // version has another modification time. INTERNAL: the system has no memory or descriptor for it.
  absl::Status Replace(const std::string& text);
  // The path of the file in this process; valid after the first Replace.
  std::string path() const;

 private:
  FileDescriptor fd_;
  int64_t version_ = 0;
};

// Gives gRPC only certificates that were checked. With an invalid file, or a key and a certificate
// of different versions, gRPC would refuse every connection. So gRPC watches files made here.
// Must outlive the server that uses it. Threads: any.
class TlsCredentials {
 public:
  // Errors of ReadTlsFiles; INTERNAL: no memory, or no /proc.
  static absl::StatusOr<std::unique_ptr<TlsCredentials>> Load(const security::TlsPaths& paths);

  // Reads the files again. If one is invalid, keeps all as they were. New connections use the new
  // files after a second or two; open connections stay as they are. Errors as in Load.
  absl::Status Reload();
  // Whether a file has changed since it was last read.
  bool Changed() const;

  const std::shared_ptr<grpc::ServerCredentials>& credentials() const { return credentials_; }
  // Expiry and serial number of the server's certificate.
  absl::Time not_after() const;
  std::string serial() const;

 private:
  explicit TlsCredentials(security::TlsPaths paths) : paths_(std::move(paths)) {}
  std::vector<FileStamp> Stamps() const;

  const security::TlsPaths paths_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  mutable absl::Mutex mu_;
  MemoryFile identity_ ABSL_GUARDED_BY(mu_);
  MemoryFile client_ca_ ABSL_GUARDED_BY(mu_);
  security::TlsMaterial material_ ABSL_GUARDED_BY(mu_);
  std::vector<FileStamp> stamps_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_TLS_CREDENTIALS_H_
