// SPDX-License-Identifier: Apache-2.0
// Every backend passes the self-test, and one that computes something else fails it.
#include "kernels/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/base/status_macros.h"
#include "tests/support/backends.h"
#include "tests/support/status_matchers.h"

namespace phasor {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TEST(SelfTestTest, EveryBackendPasses) {
  for (const auto& [name, backend] : testing::AllBackends()) {
    EXPECT_THAT(SelfTest(*backend), IsOk()) << name;
  }
}

// Runs jobs on the CPU, then flips the lowest bit of one output.
class BrokenBackend final : public Backend {
 public:
  enum class Breaks { kEncoding, kRotation, kDevice };
  explicit BrokenBackend(Breaks breaks) : breaks_(breaks) {}
  std::string_view name() const override { return "broken"; }
  std::string target() const override { return "none"; }
  int threads() const override { return 1; }
  absl::Status Run(absl::Span<const Job> jobs) override {
    if (breaks_ == Breaks::kDevice) return absl::InternalError("the device is gone");
    PHASOR_RETURN_IF_ERROR(cpu_->Run(jobs));
    for (const Job& job : jobs) {
      const auto* const rows = std::get_if<EncodeJob>(&job);
      const auto* const heads = std::get_if<RotaryJob>(&job);
      if (rows != nullptr && breaks_ == Breaks::kEncoding) rows->out[100] ^= std::byte{1};
      if (heads != nullptr && breaks_ == Breaks::kRotation)
        heads->tensors[0].y[100] ^= std::byte{1};
    }
    return absl::OkStatus();
  }

 private:
  const Breaks breaks_;
  const std::unique_ptr<Backend> cpu_ = cpu::MakeCpuBackend({cpu::RunnableTargets().front(), 1});
};

TEST(SelfTestTest, OneWrongBitIsFound) {
  BrokenBackend rows(BrokenBackend::Breaks::kEncoding), heads(BrokenBackend::Breaks::kRotation);
  EXPECT_THAT(SelfTest(rows),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("backend broken (none) computes other bits of rows")));
  EXPECT_THAT(SelfTest(heads), StatusIs(absl::StatusCode::kInternal, HasSubstr("bits of heads")));
}

TEST(SelfTestTest, ErrorOfTheDeviceIsPassedOn) {
  BrokenBackend backend(BrokenBackend::Breaks::kDevice);
  EXPECT_THAT(SelfTest(backend),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the device is gone")));
}

}  // namespace
}  // namespace phasor
