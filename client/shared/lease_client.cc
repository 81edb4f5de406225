// SPDX-License-Identifier: Apache-2.0
// Speaks the protocol of a server's lease socket: allocates memory, passes it to the server, and
// releases it.
#include "client/shared/lease_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "kernels/base/text.h"

namespace phasor::client_internal {
namespace {

constexpr absl::Duration kLeaseWait = absl::Seconds(5);
constexpr absl::Duration kPollUnit = absl::Milliseconds(1);
constexpr std::string_view kOk = "OK ";
// Memory is freed also after the deadline of a call, so this adds to the time of the call.
constexpr absl::Duration kReleaseWait = absl::Milliseconds(100);
constexpr size_t kMaxAnswer = 1024;

// Closes a file descriptor when it is destroyed.
struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) close(fd);
  }
};

// Repeats `call` while a signal interrupts it.
template <typename Call>
auto Uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Limits how long connect and sendmsg wait for a socket that takes nothing.
void LimitSends(int fd, absl::Time deadline) {
  const absl::Duration left =
      std::clamp(deadline - SteadyNow(), absl::Microseconds(1), kLeaseWait);  // 0 is no limit
  const timeval timeout = absl::ToTimeval(left);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
}

std::string SystemError() { return std::generic_category().message(errno); }

absl::Status NoMemory(int64_t bytes) {
  return absl::ResourceExhaustedError(StrCat("shared memory: no ", bytes, " bytes (", SystemError(),
                                             "); take less, or make /dev/shm larger"));
}

absl::Status NoAnswer() {
  return absl::DeadlineExceededError("lease socket: no answer in time; allow more time");
}

// Memory that processes can still take, as Linux estimates; the largest number if it does not say.
int64_t AvailableBytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %" SCNd64, &kib) == 1) return kib * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

// The error in an answer of the form "CODE message".
absl::Status ErrorOf(const std::string& answer) {
  const std::vector<std::string> parts = absl::StrSplit(answer, absl::MaxSplits(' ', 1));
  const bool exhausted = parts[0] == absl::StatusCodeToString(absl::StatusCode::kResourceExhausted);
  return absl::Status(
      exhausted ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
      StrCat("lease socket: ", parts.size() == 2 ? parts[1] : answer));
}

}  // namespace

absl::StatusOr<std::shared_ptr<LeaseClient>> LeaseClient::Connect(const std::string& path,
                                                                  std::string instance,
                                                                  absl::Time deadline) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Invalid("lease socket: '", path,
                   "' is no path of a Unix socket; must have 1 to 107 bytes");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ResourceExhaustedError(StrCat("lease socket: ", SystemError()));
  std::shared_ptr<LeaseClient> client(new LeaseClient(fd, std::move(instance)));
  LimitSends(fd, deadline);
  if (Uninterrupted([&] {
        return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
      }) != 0) {
    return absl::UnavailableError(StrCat("lease socket: cannot reach ", path, " (", SystemError(),
                                         "); is the server on this host, with --lease-socket?"));
  }
  LimitSends(fd, absl::InfiniteFuture());
  return client;
}

LeaseClient::~LeaseClient() { close(socket_); }

absl::StatusOr<SharedMemory> LeaseClient::Allocate(int64_t bytes, absl::Time deadline) {
  if (bytes < 1) return Invalid("bytes: ", bytes, "; must be at least 1");
  // To take pages until none is left would end other processes.
  if (const int64_t available = AvailableBytes(); bytes > available) {
    return absl::ResourceExhaustedError(
        StrCat("shared memory: ", bytes, " bytes; must be at most the ", available, " available"));
  }
  const Closer memory{memfd_create("phasor", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (memory.fd < 0 || ftruncate(memory.fd, bytes) != 0) return NoMemory(bytes);
  do errno = posix_fallocate(memory.fd, 0, bytes);
  while (errno == EINTR);
  if (errno != 0) return NoMemory(bytes);
  if (fcntl(memory.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return absl::InternalError(StrCat("shared memory: cannot be sealed: ", SystemError()));
  }
  const auto size = static_cast<size_t>(bytes);
  void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
  if (mapped == MAP_FAILED) return NoMemory(bytes);
  auto* const data = static_cast<std::byte*>(mapped);
  absl::StatusOr<std::string> token = Lease(memory.fd, deadline);
  if (!token.ok()) {
    munmap(mapped, size);
    return std::move(token).status();
  }
  std::lock_guard lock(mutex_);
  blocks_[data] = {bytes, *std::move(token)};
  std::shared_ptr<void> owner(mapped, [self = shared_from_this(), bytes](void* block) {
    self->Free(static_cast<std::byte*>(block), bytes);
  });
  return SharedMemory(std::move(owner), data, bytes, true);
}

absl::StatusOr<std::string> LeaseClient::Lease(int fd, absl::Time deadline) {
  PHASOR_ASSIGN_OR_RETURN(const std::string answer,
                          Ask("LEASE\n", fd, std::min(deadline, SteadyNow() + kLeaseWait)));
  const std::vector<std::string> words = absl::StrSplit(answer, ' ');
  if (words.size() == 2 && words[1] == instance_) return words[0];
  Leave();  // the server holds the memory as long as the connection is open
  return absl::FailedPreconditionError(
      "lease socket: another server answers there; must be the server of this connection, on this "
      "host");
}

void LeaseClient::Free(std::byte* data, int64_t bytes) {
  if (owned()) {
    {
      std::lock_guard lock(mutex_);
      const auto found = blocks_.find(data);
      ended_.push_back(std::move(found->second.token));
      blocks_.erase(found);
    }
    // If this fails, the connection has ended and the lease with it, or the next line ends it.
    const absl::Time deadline = SteadyNow() + kReleaseWait;
    if (const auto turn = Turn(deadline)) Settle(deadline).IgnoreError();
  }
  munmap(data, static_cast<size_t>(bytes));
}

std::optional<LeasedPlace> LeaseClient::Find(const std::byte* data, int64_t bytes) {
  std::lock_guard lock(mutex_);
  auto block = blocks_.upper_bound(data);
  if (block == blocks_.begin()) return std::nullopt;
  --block;
  const int64_t offset = data - block->first;
  if (offset > block->second.size || bytes > block->second.size - offset) return std::nullopt;
  if (!alive()) return std::nullopt;
  return LeasedPlace{block->second.token, offset};
}

bool LeaseClient::alive() const {
  if (left_ || !owned()) return false;
  pollfd end = {socket_, POLLRDHUP, 0};  // seen also behind an answer that nobody has read
  return poll(&end, 1, 0) <= 0;
}

void LeaseClient::Leave() {
  left_ = true;
  shutdown(socket_, SHUT_RDWR);
}

absl::Status LeaseClient::Gone() {
  Leave();
  return absl::UnavailableError("lease socket: closed by the server; connect again");
}

std::unique_lock<std::timed_mutex> LeaseClient::Turn(absl::Time deadline) {
  return std::unique_lock(asking_, std::chrono::steady_clock::now() +
                                       absl::ToChronoNanoseconds(deadline - SteadyNow()));
}

absl::StatusOr<std::string> LeaseClient::Ask(const std::string& line, int fd, absl::Time deadline) {
  if (!owned()) {  // the answer would be taken for one of the parent's
    return absl::UnavailableError(
        "lease socket: belongs to the process before fork(); connect again");
  }
  const auto turn = Turn(deadline);
  if (!turn) return NoAnswer();
  PHASOR_RETURN_IF_ERROR(Settle(deadline));
  PHASOR_RETURN_IF_ERROR(Send(line, fd));
  PHASOR_ASSIGN_OR_RETURN(const std::string answer, Receive(deadline));
  if (answer.starts_with(kOk)) return answer.substr(kOk.size());
  return ErrorOf(answer);
}

absl::Status LeaseClient::Settle(absl::Time deadline) {
  if (owed_) {
    PHASOR_ASSIGN_OR_RETURN(const std::string late, Receive(deadline));
    if (late.starts_with(kOk)) {  // a lease that came too late
      const std::vector<std::string> words = absl::StrSplit(late, ' ');
      std::lock_guard lock(mutex_);
      ended_.push_back(words[1]);
    }
  }
  while (true) {
    std::string token;
    {
      std::lock_guard lock(mutex_);
      if (ended_.empty()) return absl::OkStatus();
      token = std::move(ended_.back());
      ended_.pop_back();
    }
    PHASOR_RETURN_IF_ERROR(Send(StrCat("RELEASE ", token, "\n"), -1));
    PHASOR_RETURN_IF_ERROR(Receive(deadline).status());
  }
}

absl::Status LeaseClient::Send(const std::string& line, int fd) {
  iovec part = {const_cast<char*>(line.data()), line.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  }
  const ssize_t sent = Uninterrupted([&] { return sendmsg(socket_, &message, MSG_NOSIGNAL); });
  if (sent != static_cast<ssize_t>(line.size())) return Gone();
  owed_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::string> LeaseClient::Receive(absl::Time deadline) {
  while (!received_.ends_with('\n')) {
    const absl::Duration left = std::max(deadline - SteadyNow(), absl::ZeroDuration());
    pollfd answer = {socket_, POLLIN, 0};
    const auto wait = static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, kPollUnit)));
    if (Uninterrupted([&] { return poll(&answer, 1, wait); }) == 0) return NoAnswer();
    char text[256];
    const ssize_t n = Uninterrupted([&] { return recv(socket_, text, sizeof(text), 0); });
    if (n <= 0 || received_.size() > kMaxAnswer) return Gone();
    received_.append(text, static_cast<size_t>(n));
  }
  owed_ = false;
  std::string answer = std::exchange(received_, "");
  answer.pop_back();
  return answer;
}

std::shared_ptr<LeaseClient> LeaseHolder::Get() const {
  std::lock_guard lock(mutex_);
  return leases_;
}

std::shared_ptr<LeaseClient> LeaseHolder::Keep(std::shared_ptr<LeaseClient> leases) {
  std::lock_guard lock(mutex_);
  if (leases_ == nullptr || !leases_->alive()) leases_ = std::move(leases);
  return leases_;
}

}  // namespace phasor::client_internal
