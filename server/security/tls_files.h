// SPDX-License-Identifier: Apache-2.0
// Reads certificates and keys from files, and checks them before use.
#ifndef PHASOR_SERVER_SECURITY_TLS_FILES_H_
#define PHASOR_SERVER_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace phasor::security {

// Paths of PEM files, as in the options.
struct TlsPaths {
  std::string certificate;  // the server's certificate, then intermediate ones
  std::string key;
  std::string client_ca;  // signs clients' certificates; empty: clients need none
};

// The checked files as PEM, written anew.
struct TlsMaterial {
  std::string identity;   // the key, then the certificates
  std::string client_ca;  // empty: none
  absl::Time not_after;   // expiry of the server's certificate
  std::string serial;     // its serial number, hexadecimal
};

// INVALID_ARGUMENT "tls-cert: ...", "tls-key: ...", "tls-client-ca: ...": a file cannot be read or
// is not PEM, a key is encrypted, or the key does not fit the certificate. Messages contain nothing
// of a key. An expired certificate is accepted; clients will reject it.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsPaths& paths);

}  // namespace phasor::security

#endif  // PHASOR_SERVER_SECURITY_TLS_FILES_H_
