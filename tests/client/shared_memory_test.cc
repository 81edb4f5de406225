// SPDX-License-Identifier: Apache-2.0
// Tests the ordinary memory behind SharedMemory.
#include "client/shared_memory.h"

#include <gtest/gtest.h>

namespace phasor {
namespace {

TEST(SharedMemoryTest, OrdinaryMemoryIsAligned) {
  for (const int64_t size : {0, 1, 100, 1 << 20}) {
    const auto memory = SharedMemory::Ordinary(size);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->size(), size);
    EXPECT_FALSE(memory->shared());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 64, 0u);
    EXPECT_EQ(memory->span<float>().size(), static_cast<size_t>(size / 4));
  }
}

TEST(SharedMemoryTest, ANegativeSizeIsAnError) {
  EXPECT_EQ(SharedMemory::Ordinary(-1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SharedMemoryTest, TheLastOwnerFreesIt) {
  int freed = 0;
  std::byte byte;
  SharedMemory first(std::shared_ptr<void>(&byte, [&](void*) { ++freed; }), &byte, 1, true);
  SharedMemory second = std::move(first);
  EXPECT_TRUE(second.shared());
  EXPECT_EQ(freed, 0);
  second = SharedMemory();
  EXPECT_EQ(freed, 1);
}

}  // namespace
}  // namespace phasor
