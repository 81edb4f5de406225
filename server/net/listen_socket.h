// SPDX-License-Identifier: Apache-2.0
// Listening sockets, and the names of connected peers.
#ifndef PHASOR_SERVER_NET_LISTEN_SOCKET_H_
#define PHASOR_SERVER_NET_LISTEN_SOCKET_H_

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/file_descriptor.h"
#include "server/net/listen_address.h"

namespace phasor {

// Who may connect to Unix sockets.
struct SocketAccess {
  int mode = 0660;    // permissions of the file
  std::string group;  // name or number of the group that owns it; empty: that of the process
};

// A non-blocking listening socket. Removes the file of a Unix socket when it is closed, unless
// another file is there by then. Threads: a plain value.
class ListenSocket {
 public:
  ListenSocket(FileDescriptor fd, std::string address, std::string unix_path);
  ListenSocket(ListenSocket&& other) noexcept
      : fd_(std::move(other.fd_)),
        address_(std::move(other.address_)),
        unix_path_(std::exchange(other.unix_path_, "")),
        file_(other.file_) {}
  ListenSocket& operator=(ListenSocket&&) = delete;
  ~ListenSocket() { Close(); }

  int fd() const { return fd_.get(); }
  // The address in the form that clients use, with the real port.
  const std::string& address() const { return address_; }
  void Close();
  // Leaves the file of a Unix socket when this is closed, for those who also have the socket.
  void LeaveFile() { unix_path_.clear(); }

 private:
  FileDescriptor fd_;
  std::string address_;
  std::string unix_path_;         // empty: there is no file to remove
  std::pair<dev_t, ino_t> file_;  // at that path
};

// Listens on every address that `address` resolves to. With port 0, all get the same port. The file
// of a Unix socket on which no one listens any more is replaced. UNAVAILABLE "listen: ...".
// INVALID_ARGUMENT "socket-group: ...": there is no such group, or the process does not belong to
// it.
absl::StatusOr<std::vector<ListenSocket>> Listen(const ListenAddress& address,
                                                 const SocketAccess& access = {},
                                                 std::vector<FileDescriptor>* passed = nullptr);
// The same for all of these addresses, in the form of ParseListenAddress. Where one of `passed`
// already listens on an address, takes it from there.
absl::StatusOr<std::vector<ListenSocket>> Listen(const std::vector<std::string>& addresses,
                                                 const SocketAccess& access = {},
                                                 std::vector<FileDescriptor>* passed = nullptr);

// The key under which a connection is counted: "ip:<address>", or "uid:<user>" on a Unix socket.
std::string PeerKey(int connected_fd);

// The address of the peer: "127.0.0.1:4711", "::1:4711"; empty on a Unix socket. IPv4 in IPv6 is
// written as IPv4.
std::string PeerAddress(int connected_fd);

}  // namespace phasor

#endif  // PHASOR_SERVER_NET_LISTEN_SOCKET_H_
