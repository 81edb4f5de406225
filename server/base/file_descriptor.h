// SPDX-License-Identifier: Apache-2.0
// FileDescriptor: owns a file descriptor.
#ifndef PHASOR_SERVER_BASE_FILE_DESCRIPTOR_H_
#define PHASOR_SERVER_BASE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace phasor {

// Owns a file descriptor and closes it. Threads: like an int.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_FILE_DESCRIPTOR_H_
