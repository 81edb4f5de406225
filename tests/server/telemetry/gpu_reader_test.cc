// SPDX-License-Identifier: Apache-2.0
// Tests the reader with a driver that answers when the test lets it.
#include "server/telemetry/gpu_reader.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/support/eventually.h"

namespace phasor::telemetry {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatient = std::chrono::seconds(60);  // only reached when something hangs

// Shared by the test and the driver, whose thread may outlive the reader.
class SlowDriver {
 public:
  void Hold(bool hold) {
    const std::lock_guard<std::mutex> lock(mutex_);
    held_ = hold;
    changed_.notify_all();
  }
  // Answers how often it was asked.
  double Ask() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int number = ++asked_;
    changed_.wait(lock, [this] { return !held_; });
    return number;
  }
  void Close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  int asked() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return asked_;
  }
  bool closed() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return closed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool closed_ = false;
  int asked_ = 0;
};

class SlowNvml final : public Nvml {
 public:
  explicit SlowNvml(std::shared_ptr<SlowDriver> driver) : driver_(std::move(driver)) {}
  ~SlowNvml() override { driver_->Close(); }
  std::vector<GpuReading> Read() const override {
    return {{.uuid = "GPU-1", .power_watts = driver_->Ask()}};
  }

 private:
  const std::shared_ptr<SlowDriver> driver_;
};

class GpuReaderTest : public ::testing::Test {
 protected:
  ~GpuReaderTest() override { driver_->Hold(false); }

  GpuReader::Open Opens() {
    return [driver = driver_] { return std::make_unique<SlowNvml>(driver); };
  }
  static double Watts(const GpuReadings& readings) {
    return readings.gpus.empty() ? 0 : readings.gpus[0].power_watts.value_or(-1);
  }

  const std::shared_ptr<SlowDriver> driver_ = std::make_shared<SlowDriver>();
};

TEST_F(GpuReaderTest, EveryReadingIsANewOne) {
  GpuReader reader(Opens(), kPatient);
  EXPECT_EQ(Watts(reader.Read()), 1);
  EXPECT_EQ(Watts(reader.Read()), 2);
}

TEST_F(GpuReaderTest, WithoutALibraryThereIsNothingAndNobodyWaits) {
  GpuReader reader([] { return nullptr; }, kPatient);
  EXPECT_TRUE(reader.Read().gpus.empty());
  EXPECT_TRUE(reader.Read().gpus.empty());
}

TEST_F(GpuReaderTest, ADriverThatHangsLeavesTheReadingsOfBeforeWhichGrowOld) {
  GpuReader reader(Opens(), milliseconds(1000));
  ASSERT_EQ(Watts(reader.Read()), 1);
  driver_->Hold(true);
  EXPECT_EQ(Watts(reader.Read()), 1);
  const GpuReadings later = reader.Read();
  EXPECT_EQ(Watts(later), 1);
  EXPECT_GE(later.age, milliseconds(1000)) << "which the one before has waited";
  EXPECT_EQ(driver_->asked(), 2) << "it is not asked again meanwhile";
  driver_->Hold(false);
  EXPECT_TRUE(testing::Eventually([&] { return Watts(reader.Read()) > 2; }));
}

TEST_F(GpuReaderTest, ADriverThatHangsDoesNotHoldUpTheEnd) {
  {
    GpuReader reader(Opens(), milliseconds(1));
    driver_->Hold(true);
    reader.Read();
    EXPECT_TRUE(testing::Eventually([&] { return driver_->asked() == 1; }));
  }
  EXPECT_FALSE(driver_->closed());
  driver_->Hold(false);
  EXPECT_TRUE(testing::Eventually([&] { return driver_->closed(); })) << "by its own thread";
}

TEST_F(GpuReaderTest, ALibraryThatHangsWhenItIsOpenedHoldsUpNobody) {
  driver_->Hold(true);
  {
    GpuReader reader(
        [driver = driver_] {
          driver->Ask();
          return std::make_unique<SlowNvml>(driver);
        },
        milliseconds(1));
    EXPECT_TRUE(reader.Read().gpus.empty());
    EXPECT_TRUE(testing::Eventually([&] { return driver_->asked() == 1; }));
  }
  driver_->Hold(false);
  EXPECT_TRUE(testing::Eventually([&] { return driver_->closed(); }));
}

}  // namespace
}  // namespace phasor::telemetry
