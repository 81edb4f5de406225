// SPDX-License-Identifier: Apache-2.0
// Opens listening sockets or takes those that were passed, replaces stale Unix sockets, and names
// the peers of connections.
#include "server/net/listen_socket.h"

#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"

namespace phasor {
namespace {

// Large enough for every address family used here.
union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
  sockaddr_un local;
  sockaddr_storage storage;
};

absl::Status CannotListen(const std::string& where, const std::string& why,
                          const std::string& what_to_do = "must be a free address of this host") {
  return absl::UnavailableError(
      absl::StrCat("listen: cannot listen on ", where, " (", why, "); ", what_to_do));
}

std::string ErrorText(int error) { return std::strerror(error); }

// "127.0.0.1" or "::1".
std::string HostText(const SocketAddress& address, socklen_t length) {
  char host[NI_MAXHOST];
  const int failed =
      getnameinfo(&address.any, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return failed != 0 ? "?" : host;
}

std::string HostPort(const SocketAddress& address, socklen_t length) {
  const std::string host = HostText(address, length);
  if (address.any.sa_family == AF_INET6) {
    return absl::StrCat("[", host, "]:", ntohs(address.v6.sin6_port));
  }
  return absl::StrCat(host, ":", ntohs(address.v4.sin_port));
}

// Returns errno if the system call failed, or 0.
int ErrorOf(int result) { return result == 0 ? 0 : errno; }
int Bind(const FileDescriptor& fd, const sockaddr* address, socklen_t length) {
  return ErrorOf(bind(fd.get(), address, length));
}

FileDescriptor NewSocket(int family) {
  return FileDescriptor(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Where a socket listens, in the form of ListenSocket::address(); empty if it does not listen.
std::string ListensOn(int fd) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  SocketAddress address = {};
  socklen_t length = sizeof(address);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0 ||
      getsockname(fd, &address.any, &length) != 0) {
    return "";
  }
  if (address.any.sa_family == AF_UNIX) return absl::StrCat("unix:", address.local.sun_path);
  return HostPort(address, length);
}

// The socket among `passed` that listens there, which is taken from it; not valid if none does.
FileDescriptor Take(const std::string& where, std::vector<FileDescriptor>* passed) {
  if (passed == nullptr) return {};
  for (FileDescriptor& fd : *passed) {
    if (ListensOn(fd.get()) != where) continue;
    fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
    return std::move(fd);
  }
  return {};
}

// Opens a socket on one resolved address. Stores the errno of a failure in *error.
absl::StatusOr<ListenSocket> ListenTcp(const addrinfo& info, int port,
                                       std::vector<FileDescriptor>* passed, int* error) {
  SocketAddress address = {};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  (info.ai_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port) =
      htons(static_cast<uint16_t>(port));
  const std::string where = HostPort(address, info.ai_addrlen);
  if (FileDescriptor taken = Take(where, passed); taken.valid()) {
    *error = 0;
    return ListenSocket(std::move(taken), where, "");
  }
  FileDescriptor fd = NewSocket(info.ai_family);
  *error = fd.valid() ? 0 : errno;
  if (fd.valid()) {
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    *error = Bind(fd, &address.any, info.ai_addrlen);
    if (*error == 0) *error = ErrorOf(listen(fd.get(), SOMAXCONN));
  }
  if (*error == EACCES) {
    return CannotListen(where, ErrorText(*error),
                        "use a port from 1024 on, or give the server CAP_NET_BIND_SERVICE");
  }
  if (*error != 0) return CannotListen(where, ErrorText(*error));
  socklen_t length = sizeof(address);
  getsockname(fd.get(), &address.any, &length);
  return ListenSocket(std::move(fd), HostPort(address, length), "");
}

int PortOf(const ListenSocket& socket) {
  return std::stoi(socket.address().substr(socket.address().rfind(':') + 1));
}

absl::StatusOr<std::vector<ListenSocket>> ListenTcp(const ListenAddress& address,
                                                    std::vector<FileDescriptor>* passed) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (failed != 0) return CannotListen(address.host, gai_strerror(failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> infos(found, freeaddrinfo);

  std::vector<ListenSocket> sockets;
  absl::Status first_error;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const int port = sockets.empty() ? address.port : PortOf(sockets[0]);
    int error = 0;
    absl::StatusOr<ListenSocket> socket = ListenTcp(*info, port, passed, &error);
    if (socket.ok()) {
      sockets.push_back(*std::move(socket));
    } else if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) {
      first_error.Update(socket.status());  // e.g. the name also means ::1, on a host without IPv6
    } else {
      return std::move(socket).status();
    }
  }
  if (sockets.empty()) return first_error;
  return sockets;
}

std::pair<dev_t, ino_t> FileAt(const std::string& path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

// Whether the socket at that path is one that a program left behind when it ended. A program of
// another user, or one whose sockets are of another type, refuses a connection in other ways.
bool IsLeftBehind(const sockaddr_un& address) {
  const FileDescriptor fd = NewSocket(AF_UNIX);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

bool IsSocketFile(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

absl::Status CannotListenAt(const std::string& path, int error) {
  std::string what_to_do = "must be a path where no other server listens";
  if (error == EADDRINUSE && !IsSocketFile(path)) what_to_do = "the file is no socket: remove it";
  if (error == ENOENT || error == ENOTDIR) what_to_do = "its folder must exist";
  if (error == EACCES || error == EROFS)
    what_to_do = "the server must have the right to write its folder";
  return CannotListen("unix:" + path, ErrorText(error), what_to_do);
}

// The number of a group of this host; -1, which changes nothing, for no group.
absl::StatusOr<gid_t> GroupNumber(const std::string& group) {
  gid_t number = static_cast<gid_t>(-1);
  if (group.empty() || absl::SimpleAtoi(group, &number)) return number;
  struct group entry = {};
  struct group* found = nullptr;
  std::vector<char> room(1 << 16);
  getgrnam_r(group.c_str(), &entry, room.data(), room.size(), &found);
  if (found != nullptr) return found->gr_gid;
  return Invalid("socket-group: this host has no group '", group,
                 "'; use one of /etc/group, or its number");
}

// Gives the file of a bound socket its group and permissions. No one can connect before it listens.
absl::Status SetAccess(const std::string& path, const SocketAccess& access, gid_t group) {
  const bool given =
      group == static_cast<gid_t>(-1) || lchown(path.c_str(), static_cast<uid_t>(-1), group) == 0;
  if (given && chmod(path.c_str(), static_cast<mode_t>(access.mode)) == 0) return absl::OkStatus();
  return Invalid("socket-group: cannot give ", path, " to group '", access.group, "' (",
                 ErrorText(errno), "); use a group that the server's user belongs to");
}

absl::StatusOr<ListenSocket> ListenUnix(const std::string& path, const SocketAccess& access,
                                        std::vector<FileDescriptor>* passed) {
  PHASOR_ASSIGN_OR_RETURN(const gid_t group, GroupNumber(access.group));
  const std::string where = "unix:" + path;
  if (FileDescriptor taken = Take(where, passed); taken.valid() && IsSocketFile(path)) {
    PHASOR_RETURN_IF_ERROR(SetAccess(path, access, group));
    return ListenSocket(std::move(taken), where, "");
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto* any = reinterpret_cast<const sockaddr*>(&address);

  FileDescriptor fd = NewSocket(AF_UNIX);
  if (!fd.valid()) return CannotListenAt(path, errno);
  int error = Bind(fd, any, sizeof(address));
  if (error == EADDRINUSE && IsSocketFile(path) && IsLeftBehind(address)) {
    unlink(path.c_str());
    error = Bind(fd, any, sizeof(address));
  }
  if (error != 0) return CannotListenAt(path, error);
  ListenSocket socket(std::move(fd), where, path);  // from here on it removes the file
  PHASOR_RETURN_IF_ERROR(SetAccess(path, access, group));
  error = ErrorOf(listen(socket.fd(), SOMAXCONN));
  if (error != 0) return CannotListenAt(path, error);
  return socket;
}

}  // namespace

ListenSocket::ListenSocket(FileDescriptor fd, std::string address, std::string unix_path)
    : fd_(std::move(fd)),
      address_(std::move(address)),
      unix_path_(std::move(unix_path)),
      file_(FileAt(unix_path_)) {}

// Removes the file before it closes the socket: after that, another server may create its own file
// there.
void ListenSocket::Close() {
  if (!unix_path_.empty() && FileAt(unix_path_) == file_) unlink(unix_path_.c_str());
  unix_path_.clear();
  fd_.Close();
}

absl::StatusOr<std::vector<ListenSocket>> Listen(const ListenAddress& address,
                                                 const SocketAccess& access,
                                                 std::vector<FileDescriptor>* passed) {
  if (address.unix_path.empty()) return ListenTcp(address, passed);
  PHASOR_ASSIGN_OR_RETURN(ListenSocket socket, ListenUnix(address.unix_path, access, passed));
  std::vector<ListenSocket> sockets;
  sockets.push_back(std::move(socket));
  return sockets;
}

absl::StatusOr<std::vector<ListenSocket>> Listen(const std::vector<std::string>& addresses,
                                                 const SocketAccess& access,
                                                 std::vector<FileDescriptor>* passed) {
  std::vector<ListenSocket> sockets;
  for (const std::string& text : addresses) {
    PHASOR_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
    PHASOR_ASSIGN_OR_RETURN(std::vector<ListenSocket> bound, Listen(address, access, passed));
    for (ListenSocket& socket : bound) sockets.push_back(std::move(socket));
  }
  return sockets;
}

std::string PeerKey(int connected_fd) {
  SocketAddress peer = {};
  socklen_t length = sizeof(peer);
  if (getpeername(connected_fd, &peer.any, &length) != 0) return "gone";
  if (peer.any.sa_family != AF_UNIX) return "ip:" + HostText(peer, length);
  ucred user = {};
  socklen_t user_length = sizeof(user);
  getsockopt(connected_fd, SOL_SOCKET, SO_PEERCRED, &user, &user_length);
  return absl::StrCat("uid:", user.uid);
}

std::string PeerAddress(int connected_fd) {
  SocketAddress peer = {};
  socklen_t length = sizeof(peer);
  if (getpeername(connected_fd, &peer.any, &length) != 0 || peer.any.sa_family == AF_UNIX)
    return "";
  std::string host = HostText(peer, length);
  host = host.substr(0, host.find('%'));  // without the interface
  if (absl::StartsWith(host, "::ffff:")) host = host.substr(7);
  // The port is at the same offset in both structs.
  return absl::StrCat(host, ":", ntohs(peer.v4.sin_port));
}

}  // namespace phasor
