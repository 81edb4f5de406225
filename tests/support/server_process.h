// SPDX-License-Identifier: Apache-2.0
// phasor-server in its own process.
#ifndef PHASOR_TESTS_SUPPORT_SERVER_PROCESS_H_
#define PHASOR_TESTS_SUPPORT_SERVER_PROCESS_H_

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/subprocess.h"

#ifndef PHASOR_SERVER_BINARY
#define PHASOR_SERVER_BINARY "phasor-server"  // the build says where it is
#endif

namespace phasor::testing {

inline std::vector<std::string> ServerCommandLine(std::vector<std::string> flags) {
  flags.insert(flags.begin(), PHASOR_SERVER_BINARY);
  return flags;
}

// A running phasor-server, on a free port unless told otherwise. Threads: one.
class ServerProcess : public Subprocess {
 public:
  explicit ServerProcess(std::vector<std::string> flags = {},
                         const std::string& address = "127.0.0.1:0")
      : Subprocess(WithListen(std::move(flags), address)) {
    const nlohmann::json line = ReadEvent();
    EXPECT_EQ(line["event"], "serving");
    address_ = line["listeners"][0];
    backend_ = line["backend"];
    if (!line["metrics_listeners"].empty()) metrics_address_ = line["metrics_listeners"][0];
  }
  const std::string& address() const { return address_; }
  const std::string& backend() const { return backend_; }
  const std::string& metrics_address() const { return metrics_address_; }

  // The next line of the log that is not about a call.
  nlohmann::json ReadEvent() {
    while (true) {
      nlohmann::json line = nlohmann::json::parse(ReadLine());
      if (line["event"] != "call") return line;
    }
  }

 private:
  static std::vector<std::string> WithListen(std::vector<std::string> flags,
                                             const std::string& address) {
    flags.push_back("--listen=" + address);
    return ServerCommandLine(std::move(flags));
  }
  std::string address_, backend_, metrics_address_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_SERVER_PROCESS_H_
