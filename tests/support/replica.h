// SPDX-License-Identifier: Apache-2.0
// A phasor-server process that a test kills, stops and starts again.
#ifndef PHASOR_TESTS_SUPPORT_REPLICA_H_
#define PHASOR_TESTS_SUPPORT_REPLICA_H_

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/subprocess.h"

namespace phasor::testing {

// A phasor-server that can be killed, stopped and started again at the same addresses.
class Replica {
 public:
  explicit Replica(std::string binary, std::vector<std::string> flags)
      : command_{std::move(binary)}, address_("127.0.0.1:0") {
    command_.insert(command_.end(), flags.begin(), flags.end());
    Start();
  }

  // Returns when it serves.
  void Start() {
    std::vector<std::string> command = command_;
    command.push_back("--listen=" + address_);
    process_ = std::make_unique<Subprocess>(command);
    const std::string line = process_->ReadLine();
    const auto json = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(json.is_object() && json.value("event", "") == "serving") << line;
    address_ = json["listeners"].back();
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

  pid_t pid() const { return process_->pid(); }
  const std::string& address() const { return address_; }
  int port() const { return std::atoi(address_.c_str() + address_.rfind(':') + 1); }

 private:
  std::vector<std::string> command_;
  std::string address_;
  std::unique_ptr<Subprocess> process_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_REPLICA_H_
