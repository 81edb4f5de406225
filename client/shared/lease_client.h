// SPDX-License-Identifier: Apache-2.0
// The client's end of a server's lease socket. server/memory/lease_socket.h describes the protocol.
#ifndef PHASOR_CLIENT_SHARED_LEASE_CLIENT_H_
#define PHASOR_CLIENT_SHARED_LEASE_CLIENT_H_

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/shared_memory.h"

namespace phasor::client_internal {

// A place in leased memory.
struct LeasedPlace {
  std::string token;
  int64_t offset = 0;
};

// A connection to a server's lease socket, and the memory leased over it. Owns the connection; when
// the connection ends, the server ends all its leases. Leased memory keeps the connection open.
// After fork() it belongs to the parent: the child can only give its copy of the memory back.
// Threads: any.
class LeaseClient : public std::enable_shared_from_this<LeaseClient> {
 public:
  // `instance` is the server's name for its current run. UNAVAILABLE: no server listens at `path`,
  // or it has not taken the connection by `deadline` (of SteadyNow) or within 5 s.
  static absl::StatusOr<std::shared_ptr<LeaseClient>> Connect(
      const std::string& path, std::string instance, absl::Time deadline = absl::InfiniteFuture());
  ~LeaseClient();
  LeaseClient(const LeaseClient&) = delete;
  LeaseClient& operator=(const LeaseClient&) = delete;

  // Allocates memory and leases it to the server. RESOURCE_EXHAUSTED: no memory, more than is
  // available on this host, or the server takes no more. FAILED_PRECONDITION: another server
  // answers. UNAVAILABLE: the server has ended. DEADLINE_EXCEEDED: the server has not answered by
  // `deadline` (of SteadyNow) or within 5 s. The connection and its leases stay.
  absl::StatusOr<SharedMemory> Allocate(int64_t bytes,
                                        absl::Time deadline = absl::InfiniteFuture());

  // The place of [data, data + bytes), if one leased piece of memory holds all of it and the server
  // still runs.
  std::optional<LeasedPlace> Find(const std::byte* data, int64_t bytes);

  // Whether the server still holds the connection.
  bool alive() const;

 private:
  // Whether this is the process that connected, and no child of it.
  bool owned() const { return getpid() == owner_; }

  struct Block {
    int64_t size = 0;
    std::string token;
  };

  LeaseClient(int socket, std::string instance) : socket_(socket), instance_(std::move(instance)) {}
  // Leases the memory of `fd` and returns its token.
  absl::StatusOr<std::string> Lease(int fd, absl::Time deadline);
  // Ends the lease of memory, unless this is a child of the process that leased it, and frees it.
  // A server that does not answer soon ends the lease later, before it answers the next line.
  void Free(std::byte* data, int64_t bytes);
  // Sends a line, with the descriptor `fd`. Returns the words after OK of the answer.
  absl::StatusOr<std::string> Ask(const std::string& line, int fd, absl::Time deadline);
  // The turn to ask the server, which takes one line at a time. Not locked: it did not come.
  std::unique_lock<std::timed_mutex> Turn(absl::Time deadline);
  // These three need the turn. Settle takes the answer that is owed and ends the leases of
  // `ended_`; Send then sends a line, and Receive waits for its answer.
  absl::Status Settle(absl::Time deadline);
  absl::Status Send(const std::string& line, int fd);
  absl::StatusOr<std::string> Receive(absl::Time deadline);
  // Ends the connection. Returns the error that says so.
  absl::Status Gone();
  // Ends the connection, and with it all leases.
  void Leave();

  const int socket_;
  const pid_t owner_ = getpid();
  const std::string instance_;
  // Held while the server is asked; calls that look for their memory do not wait.
  std::timed_mutex asking_;
  bool owed_ = false;     // under asking_: the last line has no answer yet
  std::string received_;  // under asking_: the part of that answer that has come
  std::atomic<bool> left_ = false;
  std::mutex mutex_;
  std::map<const std::byte*, Block> blocks_;  // under mutex_
  std::vector<std::string> ended_;            // under mutex_: leases that the server must end
};

// The lease client of a connection, once there is one. The connection and its streams share it.
// Threads: any.
class LeaseHolder {
 public:
  // nullptr if nothing was leased yet.
  std::shared_ptr<LeaseClient> Get() const;
  // Stores `leases` unless there already is a client that is alive. Returns the one that is stored.
  std::shared_ptr<LeaseClient> Keep(std::shared_ptr<LeaseClient> leases);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<LeaseClient> leases_;  // under mutex_
};

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_SHARED_LEASE_CLIENT_H_
