// SPDX-License-Identifier: Apache-2.0
// A real Envoy in front of servers, with the configuration of deploy/envoy.
#ifndef PHASOR_TESTS_SUPPORT_ENVOY_PROXY_H_
#define PHASOR_TESTS_SUPPORT_ENVOY_PROXY_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/support/eventually.h"
#include "tests/support/free_port.h"
#include "tests/support/http_get.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_dir.h"

namespace phasor::testing {

// Envoy as deploy/envoy/envoy.yaml configures it, but on free ports and with these replicas.
class EnvoyProxy {
 public:
  // Where Envoy is installed; nothing if it is not.
  static std::optional<std::string> Binary(const std::string& source_dir) {
    const std::string path = source_dir + "/build/.venv/bin/envoy";
    if (access(path.c_str(), X_OK) == 0) return path;
    return std::nullopt;
  }

  // `request_timeout`: the deployed one, or a shorter one, as Envoy writes it.
  EnvoyProxy(const std::string& binary, const std::string& source_dir,
             const std::vector<std::string>& replicas,
             const std::string& request_timeout = "300s") {
    const auto deployed = [&source_dir](const std::string& name) {
      std::ifstream in(source_dir + "/deploy/envoy/" + name);
      return std::string(std::istreambuf_iterator<char>(in), {});
    };
    std::string endpoints;
    for (const std::string& replica : replicas) {
      absl::StrAppend(&endpoints, endpoints.empty() ? "" : "\n              ", EndpointAt(replica));
    }
    std::string config = deployed("envoy.yaml");
    Replace(EndpointAt("phasor:50051"), endpoints, 1, &config);
    Replace("request_timeout: 300s ", absl::StrCat("request_timeout: ", request_timeout, " "), 1,
            &config);
    Replace("port_value: 8080}", "port_value: 0}", 1, &config);
    Replace("port_value: 8443}", "port_value: 0}", 1, &config);
    Replace("port_value: 9902}", "port_value: 0}", 1, &config);
    // The one port that the file names twice.
    admin_ = absl::StrCat("127.0.0.1:", FreePort());
    Replace("port_value: 9901}", absl::StrCat("port_value: ", admin_.substr(10), "}"), 2, &config);
    Replace("/etc/envoy/certificate.yaml", files_.path() + "/certificate.yaml", 2, &config);
    Replace("/etc/envoy/phasor.pb", source_dir + "/deploy/envoy/phasor.pb", 1, &config);
    files_.Write("envoy.yaml", config);
    std::string certificate = deployed("certificate.yaml");
    Replace("/etc/envoy/tls", files_.path(), 3, &certificate);
    files_.Write("certificate.yaml", certificate);
    MakeCertificate();
    process_ = std::make_unique<Subprocess>(std::vector<std::string>{
        "/bin/sh", "-c",
        absl::StrCat("exec ", binary, " -c ", files_.path(), "/envoy.yaml -l warn --concurrency 1 ",
                     "--disable-hot-restart >", files_.path(), "/log 2>&1")});
    EXPECT_TRUE(Eventually([this] {
      return HttpGet(admin_, "/ready").find("LIVE") != std::string::npos && Healthy() > 0;
    })) << Log();
    for (const absl::string_view line : absl::StrSplit(HttpGet(admin_, "/listeners"), '\n')) {
      const std::vector<std::string> parts = absl::StrSplit(absl::StripSuffix(line, "\r"), "::");
      if (parts.size() == 2)
        listeners_[parts[0]] = "127.0.0.1" + parts[1].substr(parts[1].rfind(':'));
    }
  }

  // Gives it a new one, with another key; it takes note some time later.
  void MakeCertificate() const {
    const std::string fresh = files_.path() + "/fresh";
    Subprocess openssl({"/usr/bin/openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-days", "1", "-keyout", fresh + ".key", "-out", fresh + ".crt"});
    const std::string said = openssl.ReadAll();
    EXPECT_EQ(openssl.Wait(), 0) << said;
    for (const char* const kind : {".key", ".crt"}) {
      std::filesystem::rename(fresh + kind, files_.path() + "/tls" + kind);
    }
  }

  // Of a listener's name.
  const std::string& address(const std::string& listener) { return listeners_[listener]; }
  std::string Log() const { return files_.Read("log"); }
  std::string Certificate() const { return files_.Read("tls.crt"); }

  // A counter of Envoy's; -1: there is none of this name.
  int64_t Stat(const std::string& name) const {
    const std::string answer = HttpGet(admin_, "/stats?filter=" + name);
    const size_t found = answer.find(name + ": ");
    return found == std::string::npos ? -1 : std::atoll(answer.c_str() + found + name.size() + 2);
  }
  // Replicas that calls are sent to.
  int Healthy() const {
    int healthy = 0;
    for (const auto& [port, value] : OfReplicas("health_flags")) healthy += value == "healthy";
    return healthy;
  }
  // Calls sent to the replica at each port so far.
  std::map<int, int64_t> Sent() const {
    std::map<int, int64_t> sent;
    for (const auto& [port, value] : OfReplicas("rq_total")) sent[port] = std::stoll(value);
    return sent;
  }

 private:
  static std::string EndpointAt(const std::string& address) {
    const size_t colon = address.rfind(':');
    return absl::StrCat(
        "- endpoint: {address: {socket_address: {address: ", address.substr(0, colon),
        ", port_value: ", address.substr(colon + 1), "}}}");
  }
  static void Replace(const std::string& from, const std::string& to, int times,
                      std::string* text) {
    EXPECT_EQ(absl::StrReplaceAll({{from, to}}, text), times) << from;
  }
  // "phasor::127.0.0.1:port::name::value" of the admin interface, by port.
  std::map<int, std::string> OfReplicas(const std::string& name) const {
    std::map<int, std::string> values;
    for (const absl::string_view line : absl::StrSplit(HttpGet(admin_, "/clusters"), '\n')) {
      const std::vector<std::string> parts = absl::StrSplit(absl::StripSuffix(line, "\r"), "::");
      if (parts.size() != 4 || parts[0] != "phasor" || parts[2] != name) continue;
      values[std::atoi(parts[1].c_str() + parts[1].rfind(':') + 1)] = parts[3];
    }
    return values;
  }

  TempDir files_;
  std::string admin_;
  std::map<std::string, std::string> listeners_;
  std::unique_ptr<Subprocess> process_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_ENVOY_PROXY_H_
