// SPDX-License-Identifier: Apache-2.0
// Tests the order of tasks, on which thread they run, and that none is lost.
#include "server/base/task_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace phasor {
namespace {

using ::testing::ElementsAre;

TEST(TaskThreadTest, RunsTasksInOrderOnAThreadOfItsOwn) {
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  {
    TaskThread thread;
    for (int i = 0; i < 3; ++i) {
      thread.Post(/*client=*/0, [&, i] {
        order.push_back(i);
        threads.push_back(std::this_thread::get_id());
      });
    }
  }
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  EXPECT_EQ(threads, std::vector(3, threads[0]));
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST(TaskThreadTest, ATaskMayPostAnother) {
  bool done = false;
  {
    TaskThread thread;
    thread.Post(0, [&] { thread.Post(0, [&] { done = true; }); });
  }
  EXPECT_TRUE(done);
}

TEST(TaskThreadTest, ClientsTakeTurns) {
  std::vector<int> order;
  {
    TaskThread thread;
    absl::Notification all_posted;
    thread.Post(0, [&] { all_posted.WaitForNotification(); });
    for (const uint64_t client : {7, 7, 7, 3, 9, 9}) {
      thread.Post(client, [&order, client] { order.push_back(static_cast<int>(client)); });
    }
    all_posted.Notify();
  }
  EXPECT_THAT(order, ElementsAre(3, 7, 9, 7, 9, 7));
}

}  // namespace
}  // namespace phasor
