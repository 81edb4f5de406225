// SPDX-License-Identifier: Apache-2.0
// An engine with a fake backend and a fake clock, and calls for it.
#ifndef PHASOR_TESTS_SUPPORT_ENGINE_FIXTURE_H_
#define PHASOR_TESTS_SUPPORT_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/engine/engine.h"
#include "tests/support/fake_backend.h"
#include "tests/support/fake_clock.h"
#include "tests/support/test_call.h"

namespace phasor::engine {

class EngineFixture : public ::testing::Test {
 protected:
  // Everything is queued.
  explicit EngineFixture(int workers) {
    options_.workers = workers;
    options_.inline_bytes = 0;
  }

  // Made at its first use, with the options of then.
  Engine& engine() {
    if (engine_ == nullptr) engine_ = std::make_unique<Engine>(options_, &backend_, &clock_);
    return *engine_;
  }

  // Submits a call of 2 * text_.size() bytes.
  AnswerRef Submit(absl::Time deadline = absl::InfiniteFuture(), uint64_t client = 0) {
    auto answer = std::make_shared<Answer>();
    auto call = BytesCall(answer, text_, 3, client);
    call->deadline = deadline;
    engine().Submit(std::move(call));
    return answer;
  }

  // Submits such a call, which also reads and writes so much shared memory.
  AnswerRef SubmitWithShared(int64_t bytes) {
    auto answer = std::make_shared<Answer>();
    auto call = BytesCall(answer, text_, 3);
    call->other_bytes = bytes;
    engine().Submit(std::move(call));
    return answer;
  }

  // Submits a call and waits until a worker is stuck with it, until Release.
  AnswerRef BlockWorker() {
    backend_.Hold();
    const int runs = backend_.runs();
    AnswerRef answer = Submit();
    backend_.WaitForRuns(runs + 1);
    return answer;
  }

  std::string text_ = "01234567";
  FakeBackend backend_;
  FakeClock clock_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace phasor::engine

#endif  // PHASOR_TESTS_SUPPORT_ENGINE_FIXTURE_H_
