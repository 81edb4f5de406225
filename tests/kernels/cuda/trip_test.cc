// SPDX-License-Identifier: Apache-2.0
// A trip queued call by call.
#include "kernels/cuda/trip.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/fake_driver.h"

namespace phasor::cuda {
namespace {

using testing::FakeDevice;
using testing::FakeDriver;

class QueueTripTest : public ::testing::Test {
 protected:
  QueueTripTest() {
    trip_.host_in = in_;
    trip_.device_in = device_in_;
    trip_.in_bytes = 3;
    trip_.launches.resize(2);  // without blocks
    trip_.device_out = device_in_;
    trip_.host_out = out_;
    trip_.out_bytes = 2;
  }
  ~QueueTripTest() override { driver_.DestroyStream(stream_); }

  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  FakeDriver driver_{device_};
  Stream stream_ = *driver_.CreateStream();
  std::byte in_[3] = {std::byte{1}, std::byte{2}, std::byte{3}}, device_in_[3] = {}, out_[3] = {};
  Trip trip_;
  int64_t launched_ = 0;
};

TEST_F(QueueTripTest, GoesThereAndBack) {
  ASSERT_TRUE(QueueTrip(trip_, driver_, stream_, &launched_).ok());
  ASSERT_TRUE(driver_.Synchronize(stream_).ok());
  EXPECT_EQ(launched_, 2);
  EXPECT_EQ(out_[0], std::byte{1});
  EXPECT_EQ(out_[1], std::byte{2});
  EXPECT_EQ(out_[2], std::byte{0});
}

TEST_F(QueueTripTest, NothingComesBackUnlessItShould) {
  trip_.out_bytes = 0;
  ASSERT_TRUE(QueueTrip(trip_, driver_, stream_, &launched_).ok());
  EXPECT_EQ(device_->calls("CopyToHost"), 0);
}

TEST_F(QueueTripTest, NothingIsSentUnlessItShould) {
  trip_.in_bytes = 0;
  ASSERT_TRUE(QueueTrip(trip_, driver_, stream_, &launched_).ok());
  EXPECT_EQ(device_->calls("CopyToDevice"), 0);
  EXPECT_EQ(launched_, 2);
}

TEST_F(QueueTripTest, CountsWhatWasLaunchedBeforeAnError) {
  for (const auto& [call, number, launched] :
       {std::tuple("CopyToDevice", 0, 0), std::tuple("Run", 0, 0), std::tuple("Run", 2, 1),
        std::tuple("CopyToHost", 0, 2)}) {
    device_->FailWith(
        [call = std::string(call), number = number](const std::string& name, int64_t n) {
          return name == call && n == number ? absl::InternalError("refused") : absl::OkStatus();
        });
    launched_ = 0;
    EXPECT_EQ(QueueTrip(trip_, driver_, stream_, &launched_).code(), absl::StatusCode::kInternal);
    EXPECT_EQ(launched_, launched) << call << " " << number;
  }
}

}  // namespace
}  // namespace phasor::cuda
