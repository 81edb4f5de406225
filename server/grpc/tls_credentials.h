// SPDX-License-Identifier: Apache-2.0
// TLS for gRPC from files that may be replaced while the server runs.
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
#include "server/security/file_stamp.h"
#include "server/security/tls_files.h"

namespace phasor::rpc {

// A file that exists in memory only and is replaced as a whole. Threads: one that writes.
class MemoryFile {
 public:
  MemoryFile() = default;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  // Whoever has opened the file before goes on reading what it was. Every version has another time
  // of modification. INTERNAL: the system has no memory or descriptor for it.
  absl::Status Replace(const std::string& text);
  // Where this process finds it, after the first Replace.
  std::string path() const;

 private:
  int fd_ = -1;
  int64_t version_ = 0;
};

// Gives gRPC certificates that were checked: it would serve nobody with a file that is wrong, or
// with a key and a certificate of two versions. So it watches files of ours.
// Threads: any. Must outlive the server that uses it.
class TlsCredentials {
 public:
  // Errors of ReadTlsFiles; INTERNAL: no memory, or no /proc.
  static absl::StatusOr<std::unique_ptr<TlsCredentials>> Load(const security::TlsPaths& paths);

  // Reads the files again; if any is wrong, all stay as they were. New connections see what is new
  // within a second or two, open ones go on. Errors as Load's.
  absl::Status Reload();
  // Whether a file has changed since it was read last.
  bool Changed() const;

  const std::shared_ptr<grpc::ServerCredentials>& credentials() const { return credentials_; }
  // Of the server's certificate.
  absl::Time not_after() const;
  std::string serial() const;

 private:
  explicit TlsCredentials(security::TlsPaths paths) : paths_(std::move(paths)) {}
  std::vector<security::FileStamp> Stamps() const;

  const security::TlsPaths paths_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  mutable absl::Mutex mu_;
  MemoryFile identity_ ABSL_GUARDED_BY(mu_);
  MemoryFile client_ca_ ABSL_GUARDED_BY(mu_);
  security::TlsMaterial material_ ABSL_GUARDED_BY(mu_);
  std::vector<security::FileStamp> stamps_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::rpc

#endif  // PHASOR_SERVER_GRPC_TLS_CREDENTIALS_H_
