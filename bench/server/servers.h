// SPDX-License-Identifier: Apache-2.0
// The servers that are compared, each in a process of its own: a benchmark runs itself as
// `BENCHMARK --serve KIND UNIX_PATH REPLY_BYTES`.
#ifndef PHASOR_BENCH_SERVER_SERVERS_H_
#define PHASOR_BENCH_SERVER_SERVERS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace phasor::bench {

// Child: serves until standard input ends, having printed its TCP address. KIND is "phasor", which
// also takes leases;
// "echo", a raw callback server that answers ApplyRoPE with the request's bytes and Encode with
// REPLY_BYTES bytes; or "protobuf", whose ApplyRoPE takes and returns generated messages.
int Serve(const std::string& kind, const std::string& unix_path, int64_t reply_bytes);

// A directory of its own, removed with all that is in it. Threads: one at a time.
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

// A child process, ended by the destructor.
// Threads: one at a time. Owns: the process and the pipes to it.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The next line of its standard output. Dies when there is none.
  std::string ReadLine();
  // Largest resident size so far.
  int64_t PeakBytes() const;

 private:
  pid_t pid_ = 0;
  int to_child_ = -1;
  int from_child_ = -1;
};

// Parent: a running server.
class ChildServer {
 public:
  // The socket goes to `directory`.
  ChildServer(const std::string& kind, const std::string& directory, int64_t reply_bytes = 0);

  const std::string& tcp() const { return tcp_; }
  const std::string& unix_socket() const { return unix_; }
  int64_t PeakBytes() const { return process_.PeakBytes(); }

 private:
  const std::string unix_;
  Process process_;
  std::string tcp_;
};

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_SERVER_SERVERS_H_
