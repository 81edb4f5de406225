// SPDX-License-Identifier: Apache-2.0
// Makes certificates for tests.
#ifndef PHASOR_TESTS_SUPPORT_CERTIFICATES_H_
#define PHASOR_TESTS_SUPPORT_CERTIFICATES_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace phasor::testing {

// Both as PEM.
struct CertificateAndKey {
  std::string certificate;
  std::string key;
};

// Signs certificates. Threads: one.
class CertificateAuthority {
  struct Free {
    void operator()(X509* certificate) const { X509_free(certificate); }
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  };
  using Certificate = std::unique_ptr<X509, Free>;
  using Key = std::unique_ptr<EVP_PKEY, Free>;

 public:
  explicit CertificateAuthority(const std::string& name) : key_(EVP_EC_gen("P-256")) {
    root_.reset(Sign(key_.get(), name, "", 3600));
  }

  std::string certificate() const { return Pem(root_.get()); }

  // `names`: as OpenSSL writes them, "DNS:a,IP:127.0.0.1,URI:b"; empty: none. `seconds`: how long
  // it is valid from now on; negative: it has expired so long ago.
  CertificateAndKey Issue(const std::string& names, int64_t seconds = 3600) {
    const Key key(EVP_EC_gen("P-256"));
    const Certificate leaf(Sign(key.get(), "leaf", names, seconds));
    return {Pem(leaf.get()), Pem(key.get())};
  }

  // The key, encrypted.
  static std::string EncryptedKey() {
    const Key key(EVP_EC_gen("P-256"));
    return Pem(key.get(), EVP_aes_128_cbc());
  }

 private:
  X509* Sign(EVP_PKEY* key, const std::string& name, const std::string& names, int64_t seconds) {
    X509* const certificate = X509_new();
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -7200);
    X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509* const issuer = root_ == nullptr ? certificate : root_.get();
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
    if (root_ == nullptr) Extend(certificate, NID_basic_constraints, "critical,CA:TRUE");
    if (!names.empty()) Extend(certificate, NID_subject_alt_name, names);
    X509_sign(certificate, key_.get(), EVP_sha256());
    return certificate;
  }

  static void Extend(X509* certificate, int what, const std::string& value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value.c_str());
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }

  static std::string Text(BIO* bio) {
    char* data = nullptr;
    const auto bytes = static_cast<size_t>(BIO_get_mem_data(bio, &data));
    std::string text(data, bytes);
    BIO_free_all(bio);
    return text;
  }
  static std::string Pem(X509* certificate) {
    BIO* const bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, certificate);
    return Text(bio);
  }
  static std::string Pem(EVP_PKEY* key, const EVP_CIPHER* cipher = nullptr) {
    BIO* const bio = BIO_new(BIO_s_mem());
    unsigned char passphrase[] = "secret";
    PEM_write_bio_PrivateKey(bio, key, cipher, cipher == nullptr ? nullptr : passphrase,
                             cipher == nullptr ? 0 : 6, nullptr, nullptr);
    return Text(bio);
  }

  long serial_ = 0;
  const Key key_;
  Certificate root_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_CERTIFICATES_H_
