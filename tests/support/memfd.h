// SPDX-License-Identifier: Apache-2.0
// Anonymous memory, as a client shares it.
#ifndef PHASOR_TESTS_SUPPORT_MEMFD_H_
#define PHASOR_TESTS_SUPPORT_MEMFD_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace phasor::testing {

// Threads: one. Owns the descriptor.
class Memfd {
 public:
  explicit Memfd(const std::string& bytes, int seals = F_SEAL_SHRINK)
      : fd_(memfd_create("phasor_test", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_GE(fd_, 0);
    EXPECT_EQ(pwrite(fd_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    if (seals != 0) {
      EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, seals), 0);
    }
  }
  explicit Memfd(int64_t bytes, int seals = F_SEAL_SHRINK)
      : Memfd(std::string(static_cast<size_t>(bytes), '\0'), seals) {}
  ~Memfd() { close(fd_); }
  Memfd(const Memfd&) = delete;
  Memfd& operator=(const Memfd&) = delete;

  int fd() const { return fd_; }
  void Resize(int64_t bytes) const { EXPECT_EQ(ftruncate(fd_, bytes), 0); }
  std::string bytes() const {
    std::string text(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(fd_, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return text;
  }

 private:
  const int fd_;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_MEMFD_H_
