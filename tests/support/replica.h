// SPDX-License-Identifier: Apache-2.0
// A phasor-server process that a test kills, stops and starts again.
#ifndef PHASOR_TESTS_SUPPORT_REPLICA_H_
#define PHASOR_TESTS_SUPPORT_REPLICA_H_

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/server_process.h"

namespace phasor::testing {

// A phasor-server that can be killed, stopped and started again at the same addresses.
class Replica {
 public:
  explicit Replica(std::vector<std::string> flags) : flags_(std::move(flags)) { Start(); }

  // Returns when it serves.
  void Start() {
    process_ = std::make_unique<ServerProcess>(flags_, address_);
    address_ = process_->address();
  }
  // Calls that reach it from now on wait.
  void Pause() { process_->Signal(SIGSTOP); }
  void Kill() {
    process_->Signal(SIGKILL);
    EXPECT_EQ(process_->Wait(), 128 + SIGKILL);
  }
  // As a rolling restart does it.
  void Roll() {
    process_->Signal(SIGTERM);
    EXPECT_EQ(process_->Wait(), 0) << process_->ReadAll();
    Start();
  }

  const std::string& address() const { return address_; }
  int port() const { return std::atoi(address_.c_str() + address_.rfind(':') + 1); }

 private:
  const std::vector<std::string> flags_;
  std::string address_ = "127.0.0.1:0";
  std::unique_ptr<ServerProcess> process_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_REPLICA_H_
