// SPDX-License-Identifier: Apache-2.0
// Kills a server while it rotates in its clients' memory. The caller must learn that the call
// failed, and nothing may be rotated twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/client.h"
#include "tests/support/eventually.h"
#include "tests/support/replica.h"
#include "tests/support/temp_dir.h"

namespace phasor {
namespace {

using testing::Eventually;

constexpr int kTensors = 400, kThreads = 8;
constexpr int64_t kTokens = 128, kHeads = 8, kHeadDim = 64;
constexpr int64_t kElements = kTokens * kHeads * kHeadDim;
constexpr int64_t kBytes = kElements * 4;

// Every tensor is rotated by one call, from several threads; some calls meet the end of the server.
class KilledServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    memory_ = *client_.AllocateShared(kTensors * kBytes);
    ASSERT_TRUE(memory_.shared());
    before_.resize(kElements);
    for (int64_t i = 0; i < kElements; ++i) {
      before_[static_cast<size_t>(i)] = 1 + static_cast<float>(i % 1021) / 1021;
    }
    rotated_ = before_;
    const Client here = *Client::Connect("inproc:");
    ASSERT_TRUE(here.ApplyRoPE(kSpec, kPositions, {MutableView(rotated_, kShape)}).ok());
    for (int i = 0; i < kTensors; ++i) std::memcpy(Tensor(i), before_.data(), kBytes);
  }

  float* Tensor(int i) const { return reinterpret_cast<float*>(memory_.data()) + i * kElements; }

  // Until none is left. A caller whose call failed waits for the server before the next one.
  void RotateAll() {
    for (int i = next_++; i < kTensors; i = next_++) {
      absl::Span<float> tensor(Tensor(i), kElements);
      statuses_[static_cast<size_t>(i)] =
          client_.ApplyRoPE(kSpec, kPositions, {MutableView(tensor, kShape)}).status();
      ++done_;
      if (!statuses_[static_cast<size_t>(i)].ok()) back_.WaitForNotification();
    }
  }

  // Elements of a tensor that are as they were, and rotated once; the rest is neither.
  std::pair<int64_t, int64_t> Count(int i) const {
    int64_t untouched = 0, once = 0;
    for (size_t k = 0; k < kElements; ++k) {
      const float x = Tensor(i)[k];
      if (x == rotated_[k]) {
        ++once;
      } else if (x == before_[k]) {
        ++untouched;
      }
    }
    return {untouched, once};
  }

  static inline const Spec kSpec{.preset = "llama-2", .head_dim = kHeadDim};
  static inline const IntegerRange kPositions{.start = 1, .count = kTokens};
  static inline const std::vector<int64_t> kShape{kTokens, kHeads, kHeadDim};

  const testing::TempDir directory_;
  testing::Replica server_{{"--threads=2", "--lease-socket=" + directory_.path() + "/lease"}};
  const Client client_ = *Client::Connect(server_.address());
  SharedMemory memory_ = *SharedMemory::Ordinary(1);
  std::vector<float> before_, rotated_;
  std::vector<absl::Status> statuses_{kTensors};
  std::atomic<int> next_ = 0, done_ = 0;
  absl::Notification back_;
};

TEST_F(KilledServerTest, RotatesNothingTwiceAndSaysWhatFailed) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([this] { RotateAll(); });
  EXPECT_TRUE(Eventually([this] { return done_ >= kTensors / 4; }));
  server_.Kill();
  server_.Start();
  EXPECT_TRUE(Eventually([this] { return client_.CheckHealth().ok(); }));
  back_.Notify();
  for (std::thread& thread : threads) thread.join();

  int succeeded = 0, failed = 0, written = 0;
  for (int i = 0; i < kTensors; ++i) {
    const absl::Status& status = statuses_[static_cast<size_t>(i)];
    const auto [untouched, once] = Count(i);
    EXPECT_EQ(untouched + once, kElements) << i << ": rotated twice, " << status;
    if (status.ok()) {
      ++succeeded;
      EXPECT_EQ(once, kElements) << i;
    } else if (absl::IsNotFound(status)) {  // sent to the new server, with a name of the old one's
      EXPECT_EQ(untouched, kElements) << i;
    } else {
      ++failed;
      written += untouched < kElements;
      EXPECT_TRUE(absl::IsAborted(status) || absl::IsUnavailable(status)) << status;
    }
  }
  EXPECT_GT(failed, 0) << "the server was killed between two calls";
  std::printf("MEASURED %d calls succeeded, %d failed, of which %d had written\n", succeeded,
              failed, written);
}

}  // namespace
}  // namespace phasor
