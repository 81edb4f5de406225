// SPDX-License-Identifier: Apache-2.0
// Reads a page over HTTP.
#ifndef PHASOR_TESTS_SUPPORT_HTTP_GET_H_
#define PHASOR_TESTS_SUPPORT_HTTP_GET_H_

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/socket_client.h"

namespace phasor::testing {

// The answer to GET `path`; empty when nobody answers.
inline std::string HttpGet(const std::string& address, const std::string& path) {
  const FileDescriptor fd = ConnectTo(address);
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
  if (!fd.valid()) return "";
  if (send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "";
  std::string answer;
  char part[4096];
  for (ssize_t n; (n = read(fd.get(), part, sizeof(part))) > 0;) {
    answer.append(part, static_cast<size_t>(n));
  }
  return answer;
}

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_HTTP_GET_H_
