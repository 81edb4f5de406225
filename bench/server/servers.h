// SPDX-License-Identifier: Apache-2.0
// The servers that are compared. Each runs in its own process: a benchmark starts itself as
// `BENCHMARK --serve KIND UNIX_PATH REPLY_BYTES`.
#ifndef PHASOR_BENCH_SERVER_SERVERS_H_
#define PHASOR_BENCH_SERVER_SERVERS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace phasor::bench {

// The child process. Prints its TCP address and serves until standard input ends. KIND is one of
// - "phasor", which also takes leases;
// - "echo" and "copy", which compute nothing (echo.h); the answer to an Encode has REPLY_BYTES;
// - "few_threads_echo", the echo on as many of gRPC's threads as phasor receives on;
// - "busy_echo", the same, but its threads are busy for 3 us in each Encode;
// - "protobuf", whose ApplyRoPE takes and returns generated messages.
int Serve(const std::string& kind, const std::string& unix_path, int64_t reply_bytes);

// A temporary directory, removed with its contents. Threads: one thread at a time.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/phasor-bench-XXXXXX";
};

// A child process, ended by the destructor. Owns the process and the pipes to it.
// Threads: one thread at a time.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The next line of its standard output. Dies if there is none.
  std::string ReadLine();
  // The largest resident size so far.
  int64_t PeakBytes() const;
  // The processor time so far, of all its threads.
  double CpuSeconds() const;

 private:
  pid_t pid_ = 0;
  int to_child_ = -1;
  int from_child_ = -1;
};

// The parent's handle of a running server.
class ChildServer {
 public:
  // The Unix socket is made in `directory`.
  ChildServer(const std::string& kind, const std::string& directory, int64_t reply_bytes = 0);

  const std::string& tcp() const { return tcp_; }
  const std::string& unix_socket() const { return unix_; }
  int64_t PeakBytes() const { return process_.PeakBytes(); }
  double CpuSeconds() const { return process_.CpuSeconds(); }

 private:
  const std::string unix_;
  Process process_;
  std::string tcp_;
};

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_SERVER_SERVERS_H_
