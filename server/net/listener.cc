// SPDX-License-Identifier: Apache-2.0
// The accept loop: one thread with one epoll. It watches the listening sockets, a wake-up, and a
// duplicate of every connection that was handed on. A duplicate reports a hang-up when either side
// shuts the connection down. So open connections are counted although gRPC owns them.
#include "server/net/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "server/base/log.h"
#include "server/net/delivery.h"
#include "server/net/listen_socket.h"
#include "server/net/systemd.h"

namespace phasor {
namespace {

constexpr int kAcceptsPerTurn = 64;  // before other sockets get their turn
constexpr int kStarvedPauseMs = 50;  // between attempts without any free descriptor
constexpr absl::Duration kDeliveryTurn = absl::Milliseconds(1);  // between looks in HangUp
constexpr int kTurnMs = 1000;  // longest wait, so that a live thread shows a sign of life

bool IsStarved(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

bool Listens(int fd) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

// Has systemd keep the sockets, so that connections wait while the process is replaced.
void Keep(const std::string& notify_socket, std::vector<ListenSocket>* sockets) {
  std::vector<int> fds;
  for (const ListenSocket& socket : *sockets) fds.push_back(socket.fd());
  if (!KeepDescriptors(notify_socket, fds)) return;
  for (ListenSocket& socket : *sockets) socket.LeaveFile();
}

FileDescriptor OpenSpare() { return FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

class EpollListener final : public Listener {
 public:
  EpollListener(const ListenerOptions& options, std::vector<ListenSocket> sockets)
      : closes_oldest_(options.closes_oldest),
        max_connections_(options.max_connections),
        max_connections_per_peer_(options.max_connections_per_peer),
        stuck_after_(absl::ToChronoNanoseconds(options.stuck_after)),
        sockets_(std::move(sockets)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        spare_(OpenSpare()) {
    for (const ListenSocket& socket : sockets_) addresses_.push_back(socket.address());
  }
  ~EpollListener() override { Stop(); }

  bool valid() const { return epoll_.valid() && wake_.valid(); }

  void Start(Connected connected) override {
    connected_ = std::move(connected);
    last_turn_ = Clock::now();
    Control(EPOLL_CTL_ADD, wake_.get(), EPOLLIN);
    for (const ListenSocket& socket : sockets_) Control(EPOLL_CTL_ADD, socket.fd(), EPOLLIN);
    thread_ = std::thread([this] { Serve(); });
  }

  void Stop() override {
    if (stopping_.exchange(true)) return;
    const uint64_t one = 1;
    const ssize_t written = write(wake_.get(), &one, sizeof(one));
    static_cast<void>(written);  // an eventfd at 0 accepts it
    if (thread_.joinable()) thread_.join();
    const std::lock_guard<std::mutex> lock(closing_);
    sockets_.clear();
  }

  bool HangUp(absl::Duration time) override {
    const absl::Time until = SteadyNow() + time;
    absl::flat_hash_map<int, Connection> connections;
    {
      const std::lock_guard<std::mutex> lock(connections_mu_);
      connections.swap(connections_);
    }
    std::vector<std::pair<int, Delivery>> left;
    for (const auto& [fd, connection] : connections) left.emplace_back(fd, Delivery(fd));
    while (true) {
      const auto arrived = std::partition(left.begin(), left.end(),
                                          [](const auto& each) { return !each.second.done(); });
      std::for_each(arrived, left.end(), [](const auto& each) { shutdown(each.first, SHUT_RDWR); });
      left.erase(arrived, left.end());
      if (left.empty() || SteadyNow() >= until) break;
      absl::SleepFor(kDeliveryTurn);
    }
    for (const auto& [fd, delivery] : left) {
      Log(LogLevel::kWarn, "hung up on a peer that has not received its answers",
          {{"peer", PeerAddress(fd)}});
      shutdown(fd, SHUT_RDWR);
    }
    return left.empty();
  }

  void HangUpOn(const std::string& peer) override {
    const std::lock_guard<std::mutex> lock(connections_mu_);
    for (const auto& [fd, connection] : connections_) {
      if (PeerAddress(fd) != peer) continue;
      shutdown(fd, SHUT_RDWR);
      Log(LogLevel::kWarn, "hung up on a peer with too many calls", {{"peer", peer}});
    }
  }

  Connections& connections() override { return named_; }

  void SetCaps(int max_connections, int max_connections_per_peer) override {
    max_connections_.store(max_connections, std::memory_order_relaxed);
    max_connections_per_peer_.store(max_connections_per_peer, std::memory_order_relaxed);
  }

  std::vector<std::string> addresses() const override { return addresses_; }

  bool accepting() const override {
    if (Clock::now() - last_turn_.load() > stuck_after_) return false;
    const std::lock_guard<std::mutex> lock(closing_);
    return !sockets_.empty() &&
           std::all_of(sockets_.begin(), sockets_.end(),
                       [](const ListenSocket& socket) { return Listens(socket.fd()); });
  }

  ListenerStats stats() const override {
    ListenerStats stats;
    stats.accepted = accepted_.load(std::memory_order_relaxed);
    stats.refused = refused_.load(std::memory_order_relaxed);
    stats.starved = starved_.load(std::memory_order_relaxed);
    stats.connections = open_.load(std::memory_order_relaxed);
    return stats;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    FileDescriptor duplicate;
    std::string peer;
    std::string address;  // in the form of PeerAddress
    uint64_t number = 0;  // in `named_`
    int64_t accepted_before = 0;
  };

  void Control(int operation, int fd, uint32_t events) {
    epoll_event event = {};
    event.events = events;
    event.data.fd = fd;
    epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  void Serve() {
    std::array<epoll_event, 64> events;
    while (!stopping_.load()) {
      const int count = epoll_wait(epoll_.get(), events.data(), events.size(),
                                   paused_ ? kStarvedPauseMs : kTurnMs);
      last_turn_ = Clock::now();
      if (paused_) Resume();
      // Handle closed connections first, because they make room.
      for (int i = 0; i < count; ++i) NoteClosed(events[i]);
      for (int i = 0; i < count && !stopping_.load(); ++i) AcceptOn(events[i].data.fd);
    }
  }

  // An error event alone does not mean that a connection was shut down.
  void NoteClosed(const epoll_event& event) {
    if ((event.events & EPOLLHUP) != 0) Forget(event.data.fd);
  }

  // Does nothing if `fd` is not the duplicate of a connection.
  void Forget(int fd) {
    Connection closed;
    {
      const std::lock_guard<std::mutex> lock(connections_mu_);
      const auto connection = connections_.find(fd);
      if (connection == connections_.end()) return;
      closed = std::move(connection->second);
      connections_.erase(connection);
    }
    // While gRPC holds the socket too, its events would go on under this number, which the next
    // connection may get.
    Control(EPOLL_CTL_DEL, fd, 0);
    const auto peer = peers_.find(closed.peer);
    if (--peer->second == 0) peers_.erase(peer);
    open_.fetch_sub(1, std::memory_order_relaxed);
    named_.Close(closed.address, closed.number);
  }

  void CloseOldest() {
    int oldest = -1;
    {
      const std::lock_guard<std::mutex> lock(connections_mu_);
      const auto found = std::min_element(
          connections_.begin(), connections_.end(),
          [](auto& a, auto& b) { return a.second.accepted_before < b.second.accepted_before; });
      if (found == connections_.end()) return;
      oldest = found->first;
      shutdown(oldest, SHUT_RDWR);
    }
    Forget(oldest);
  }

  void AcceptOn(int fd) {
    for (const ListenSocket& socket : sockets_) {
      if (socket.fd() != fd) continue;
      for (int i = 0; i < kAcceptsPerTurn && AcceptOne(fd); ++i) {
      }
    }
  }

  // Returns false if no connection waits any more.
  bool AcceptOne(int listening_fd) {
    FileDescriptor fd(accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      if (IsStarved(errno)) return Starve(listening_fd);
      if (!Listens(listening_fd)) return GiveUp(listening_fd);
      return true;  // the connection broke before it was accepted
    }
    if (!Admit(fd.get())) return true;
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // fails on Unix sockets
    accepted_.fetch_add(1, std::memory_order_relaxed);
    connected_(listening_fd, fd.Release());
    return true;
  }

  // Gives up a socket that no longer listens: it would wake the thread for ever.
  bool GiveUp(int listening_fd) {
    Log(LogLevel::kError, "a socket no longer listens",
        {{"fd", static_cast<int64_t>(listening_fd)}});
    Control(EPOLL_CTL_DEL, listening_fd, 0);
    return false;
  }

  // Counts the connection, unless a limit is reached.
  bool Admit(int fd) {
    if (closes_oldest_ && open_ >= max_connections_) CloseOldest();
    std::string peer = PeerKey(fd);
    const std::lock_guard<std::mutex> lock(connections_mu_);
    const auto same = peers_.find(peer);
    const int of_peer = same == peers_.end() ? 0 : same->second;
    if (static_cast<int>(connections_.size()) >= max_connections_.load(std::memory_order_relaxed) ||
        of_peer >= max_connections_per_peer_.load(std::memory_order_relaxed)) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      Log(LogLevel::kDebug, "connection refused",
          {{"peer", peer}, {"connections", static_cast<int64_t>(connections_.size())}});
      return false;
    }
    FileDescriptor duplicate(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!duplicate.valid()) {
      NoteStarved();
      return false;
    }
    const int key = duplicate.get();
    ++peers_[peer];
    open_.fetch_add(1, std::memory_order_relaxed);
    std::string address = PeerAddress(fd);
    named_.Open(address);
    const uint64_t number = named_.NumberOf(address);
    connections_[key] = {std::move(duplicate), std::move(peer), std::move(address), number,
                         accepted_.load(std::memory_order_relaxed)};
    Control(EPOLL_CTL_ADD, key, EPOLLET);  // hang-ups are always reported
    return true;
  }

  // Handles a lack of descriptors: closes the spare one, accepts the waiting client with it and
  // closes that connection, or else pauses. Returns false if no connection waits any more; accept
  // can only report that if it has a descriptor.
  bool Starve(int listening_fd) {
    if (spare_.valid()) {
      spare_.Close();
      FileDescriptor fd(accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC));
      const bool descriptors_lack = fd.valid();
      const bool nothing_waits = !descriptors_lack && !IsStarved(errno);
      if (descriptors_lack) NoteStarved();
      fd.Close();
      spare_ = OpenSpare();
      if (nothing_waits) return false;
      // Without memory for connections a free descriptor does not help: trying again at once would
      // spin.
      if (descriptors_lack && spare_.valid()) return true;
    }
    NoteStarved();
    paused_ = true;
    for (const ListenSocket& socket : sockets_) Control(EPOLL_CTL_MOD, socket.fd(), 0);
    return false;
  }

  void Resume() {
    if (!spare_.valid()) spare_ = OpenSpare();
    paused_ = false;
    for (const ListenSocket& socket : sockets_) Control(EPOLL_CTL_MOD, socket.fd(), EPOLLIN);
  }

  void NoteStarved() {
    const int64_t times = starved_.fetch_add(1, std::memory_order_relaxed) + 1;
    if ((times & (times - 1)) != 0) return;  // log only at powers of two
    Log(LogLevel::kWarn, "out of file descriptors or memory for connections", {{"times", times}});
  }

  const bool closes_oldest_;
  std::atomic<int> max_connections_;
  std::atomic<int> max_connections_per_peer_;
  const Clock::duration stuck_after_;
  mutable std::mutex closing_;         // held to close sockets, and by accepting()
  std::vector<ListenSocket> sockets_;  // until Stop, changed by the thread only
  std::vector<std::string> addresses_;
  const FileDescriptor epoll_;
  const FileDescriptor wake_;
  Connected connected_;
  std::atomic<bool> stopping_ = false;
  std::atomic<Clock::time_point> last_turn_ = Clock::time_point();
  std::atomic<int64_t> accepted_ = 0;
  std::atomic<int64_t> refused_ = 0;
  std::atomic<int64_t> starved_ = 0;
  std::atomic<int64_t> open_ = 0;

  // Used by the thread only, until Stop.
  FileDescriptor spare_;
  bool paused_ = false;
  absl::flat_hash_map<std::string, int> peers_;  // open connections of each peer

  Connections named_;
  std::mutex connections_mu_;
  absl::flat_hash_map<int, Connection> connections_;  // by duplicate
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const ListenerOptions& options) {
  std::vector<FileDescriptor> passed;
  for (const int fd : options.passed) passed.emplace_back(fd);
  auto sockets = Listen(options.addresses, options.access, &passed);
  if (!sockets.ok() && !passed.empty()) {
    // The addresses may have changed, and a socket that was kept may be in the way of a new one.
    passed.clear();
    ForgetDescriptors(options.notify_socket);
    sockets = Listen(options.addresses, options.access);
  }
  PHASOR_RETURN_IF_ERROR(sockets.status());
  Keep(options.notify_socket, &*sockets);
  auto listener = std::make_unique<EpollListener>(options, *std::move(sockets));
  if (!listener->valid()) {
    return absl::UnavailableError("listen: no file descriptor left for epoll; raise RLIMIT_NOFILE");
  }
  return listener;
}

}  // namespace phasor
