// SPDX-License-Identifier: Apache-2.0
// Reads and checks PEM files. Returns PEM that is written from the parsed objects, so that gRPC
// reads exactly what was checked here.
#include "server/security/tls_files.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>
#include <vector>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "server/security/credential_file.h"

namespace phasor::security {
namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

absl::Status Wrong(const std::string& option, const std::string& path, const char* problem) {
  ERR_clear_error();
  return InvalidAt(option, "'", path, "' ", problem);
}

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(bytes));
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::string& option,
                                                          const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(const std::string text, ReadFile(option, path));
  const Bio bio = BioOf(text);
  std::vector<Certificate> certificates;
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(one);
  }
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const bool at_end = ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (certificates.empty()) return Wrong(option, path, "has no certificate; must be PEM");
  if (!at_end) return Wrong(option, path, "has a certificate that cannot be read; must be PEM");
  return certificates;
}

// A password callback that provides none and notes that one was asked for.
int NoPassphrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  PHASOR_ASSIGN_OR_RETURN(std::string text, ReadFile("tls-key", path));
  bool encrypted = false;
  Key key(PEM_read_bio_PrivateKey(BioOf(text).get(), nullptr, &NoPassphrase, &encrypted));
  OPENSSL_cleanse(text.data(), text.size());
  if (encrypted) return Wrong("tls-key", path, "is encrypted; must be a key without passphrase");
  if (key == nullptr) return Wrong("tls-key", path, "has no private key; must be PEM");
  return key;
}

std::string Pem(const std::vector<Certificate>& certificates, EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (key != nullptr) {
    PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  }
  for (const Certificate& one : certificates) PEM_write_bio_X509(bio.get(), one.get());
  return TextOf(bio.get());
}

absl::Time NotAfter(const X509* certificate) {
  std::tm time = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) != 1) return absl::InfinitePast();
  return absl::FromTM(time, absl::UTCTimeZone());
}

std::string SerialOf(const X509* certificate) {
  BIGNUM* const number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr);
  char* const digits = BN_bn2hex(number);
  std::string serial = digits == nullptr ? "" : digits;
  OPENSSL_free(digits);
  BN_free(number);
  return serial;
}

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsPaths& paths) {
  PHASOR_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                          ReadCertificates("tls-cert", paths.certificate));
  PHASOR_ASSIGN_OR_RETURN(const Key key, ReadKey(paths.key));
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    return Wrong("tls-key", paths.key,
                 "is not the key of the first certificate of --tls-cert; must be that key");
  }
  TlsMaterial material;
  material.identity = Pem(chain, key.get());
  material.not_after = NotAfter(chain[0].get());
  material.serial = SerialOf(chain[0].get());
  if (!paths.client_ca.empty()) {
    PHASOR_ASSIGN_OR_RETURN(const std::vector<Certificate> authorities,
                            ReadCertificates("tls-client-ca", paths.client_ca));
    material.client_ca = Pem(authorities, nullptr);
  }
  return material;
}

}  // namespace phasor::security
