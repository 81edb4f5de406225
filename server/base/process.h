// SPDX-License-Identifier: Apache-2.0
// Settings of the whole process, made before other threads start.
#ifndef PHASOR_SERVER_BASE_PROCESS_H_
#define PHASOR_SERVER_BASE_PROCESS_H_

#include <thread>

#include "server/base/file_descriptor.h"

namespace phasor {

// Opens /dev/null, for reading, as each standard stream that the parent has closed. Otherwise the
// first file or socket would get its number, and log lines would go there.
void OpenStandardStreams();

// Limits glibc to one heap per eight cores, at least one, instead of eight per core. A heap keeps
// freed memory for its own threads. gRPC receives on several threads, so each heap would keep as
// much as the largest request. Does nothing if MALLOC_ARENA_MAX or GLIBC_TUNABLES is set. Call it
// before other threads start.
void LimitHeaps(int cores);

// Turns off Abseil's search for lock cycles, which distributions enable. It takes a tenth of the
// time of a small call. In debug builds a cycle ends the process.
void ChooseLockOrderChecks();

// If a thread cannot be started, the process ends with exit status 1 and says which limits to
// raise. Threads are started at the start only.
void NameMissingThreads();

// As long as it lives, SIGTERM and SIGINT end the process at once, although all threads block them.
// The start may take long: it opens devices and reads tables. Signals that come later stay pending.
class StartWatch {
 public:
  StartWatch();
  ~StartWatch();

 private:
  const FileDescriptor signals_;
  const FileDescriptor started_;
  std::thread thread_;
};

// From now on the nth SIGTERM or SIGINT ends the process at once, with 128 and its number; those
// before it do nothing. Needs no thread: there may be none left.
void LeaveAtSignal(int nth);

}  // namespace phasor

#endif  // PHASOR_SERVER_BASE_PROCESS_H_
