// SPDX-License-Identifier: Apache-2.0
// Shared memory as a client makes it.
#ifndef PHASOR_TESTS_SUPPORT_SHARED_MEMORY_H_
#define PHASOR_TESTS_SUPPORT_SHARED_MEMORY_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>

namespace phasor::testing {

// Memory with a name of its own, which goes with this. Threads: one.
class SharedMemory {
 public:
  explicit SharedMemory(const std::string& bytes) : key_(NewKey()) {
    fd_ = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT_GE(fd_, 0) << key_;
    EXPECT_EQ(pwrite(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  ~SharedMemory() {
    close(fd_);
    shm_unlink(key_.c_str());
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const std::string& key() const { return key_; }
  void Resize(int64_t bytes) const { EXPECT_EQ(ftruncate(fd_, bytes), 0); }
  std::string bytes() const {
    std::string text(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(fd_, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return text;
  }

 private:
  static std::string NewKey() {
    static std::atomic<int> count = 0;
    return "/phasor_test_" + std::to_string(getpid()) + "_" + std::to_string(++count);
  }

  const std::string key_;
  int fd_ = -1;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_SHARED_MEMORY_H_
