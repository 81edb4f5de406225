// SPDX-License-Identifier: Apache-2.0
// GPU memory that another process exports. The test has its own view of it, and the GPU has one
// that only a working GPU can access. Code that uses the latter as host memory crashes.
#ifndef PHASOR_TESTS_SUPPORT_FAKE_EXPORT_H_
#define PHASOR_TESTS_SUPPORT_FAKE_EXPORT_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "kernels/cuda/driver.h"

namespace phasor::testing {

// Threads: any, as memory.
class FakeExport {
 public:
  // `number` makes the handle. The allocation is of whole pages.
  FakeExport(int64_t bytes, int64_t number) : bytes_((bytes + 4095) / 4096 * 4096) {
    handle_.fill(std::byte{0x5A});
    std::memcpy(handle_.data(), &number, sizeof number);
    handle_ = HandleAt(0);
    if (fd_ < 0 || ftruncate(fd_, bytes_) != 0) std::abort();
    data_ = Map(PROT_READ | PROT_WRITE);
    device_ = Map(PROT_NONE);
  }
  ~FakeExport() {
    close(fd_);
    munmap(data_, static_cast<size_t>(bytes_));
    munmap(device_, static_cast<size_t>(bytes_));
  }
  FakeExport(const FakeExport&) = delete;
  FakeExport& operator=(const FakeExport&) = delete;

  const IpcHandle& handle() const { return handle_; }
  // That of an allocation which is part of this one, as CUDA's small ones are parts of a block.
  // From there on, all is mapped.
  IpcHandle HandleAt(int64_t offset) const {
    IpcHandle part = handle_;
    std::memcpy(part.data() + sizeof(int64_t), &offset, sizeof offset);
    return part;
  }
  static int64_t OffsetOf(const IpcHandle& handle) {
    int64_t offset = 0;
    std::memcpy(&offset, handle.data() + sizeof offset, sizeof offset);
    return offset;
  }
  std::string handle_bytes() const {
    return {reinterpret_cast<const char*>(handle_.data()), handle_.size()};
  }
  // What the process that made it sees.
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Of this process; another one can map it.
  int fd() const { return fd_; }

  // For the device.
  std::byte* device_view() const { return device_; }
  void SetTouchable(bool touchable) const {
    const int protection = touchable ? PROT_READ | PROT_WRITE : PROT_NONE;
    if (mprotect(device_, static_cast<size_t>(bytes_), protection) != 0) std::abort();
  }

 private:
  std::byte* Map(int protection) const {
    void* const memory = mmap(nullptr, static_cast<size_t>(bytes_), protection, MAP_SHARED, fd_, 0);
    if (memory == MAP_FAILED) std::abort();
    return static_cast<std::byte*>(memory);
  }

  const int64_t bytes_;
  const int fd_ = memfd_create("device", MFD_CLOEXEC);
  IpcHandle handle_;
  std::byte* data_ = nullptr;
  std::byte* device_ = nullptr;
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_FAKE_EXPORT_H_
