// SPDX-License-Identifier: Apache-2.0
// A limit on the size of files, which stands in for a full disk.
#ifndef PHASOR_TESTS_SUPPORT_FILE_SIZE_LIMIT_H_
#define PHASOR_TESTS_SUPPORT_FILE_SIZE_LIMIT_H_

#include <sys/resource.h>

#include <csignal>

namespace phasor::testing {

// While it lives, this process writes no file beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*const signal_)(int);
  rlimit before_ = {};
};

}  // namespace phasor::testing

#endif  // PHASOR_TESTS_SUPPORT_FILE_SIZE_LIMIT_H_
