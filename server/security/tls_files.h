// SPDX-License-Identifier: Apache-2.0
// Certificates and keys from files, checked before anybody uses them.
#ifndef PHASOR_SERVER_SECURITY_TLS_FILES_H_
#define PHASOR_SERVER_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace phasor::security {

// PEM files, as the options name them.
struct TlsPaths {
  std::string certificate;  // the server's, then those between it and its root
  std::string key;
  std::string client_ca;  // who signs clients' certificates; empty: clients need none
};

// As PEM, in a form of our own.
struct TlsMaterial {
  std::string identity;   // the key, then the certificates
  std::string client_ca;  // empty: none
  absl::Time not_after;   // of the server's certificate
  std::string serial;     // of it, hexadecimal
};

// INVALID_ARGUMENT "tls-cert: ...", "tls-key: ...", "tls-client-ca: ...": a file cannot be read, is
// not PEM, has an encrypted key, or the key is not that of the certificate. Nothing of a key is
// repeated. A certificate that has expired is taken: its clients say so.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsPaths& paths);

}  // namespace phasor::security

#endif  // PHASOR_SERVER_SECURITY_TLS_FILES_H_
