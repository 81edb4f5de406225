// SPDX-License-Identifier: Apache-2.0
// Stands between gRPC and the functions with which it reads. Filters of sockets are found by
// descriptor, and go when the descriptor is closed. Those of TLS connections belong to OpenSSL's
// object.
#include "server/grpc/filtered_reads.h"

#include <dlfcn.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "kernels/base/steady_time.h"
#include "proto/grpc_version.h"
#include "server/base/log.h"
#include "server/base/log_limit.h"

namespace phasor {
namespace {

constexpr rlim_t kMostDescriptors = 1 << 20;

// The system's function of this name.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

// Filters by descriptor. A slot is written when its descriptor has just been opened or is about to
// be closed, when nobody else can use it.
class Filters {
 public:
  Filters() : slots_(Descriptors()) {}

  FrameFilter* Find(int fd) const {
    if (fd < 0 || static_cast<size_t>(fd) >= slots_.size()) return nullptr;
    return slots_[static_cast<size_t>(fd)].load(std::memory_order_acquire);
  }
  void Replace(int fd, std::unique_ptr<FrameFilter> filter) {
    if (fd < 0 || static_cast<size_t>(fd) >= slots_.size()) return;
    delete slots_[static_cast<size_t>(fd)].exchange(filter.release());
  }

 private:
  static size_t Descriptors() {
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    return static_cast<size_t>(std::min(limit.rlim_max, kMostDescriptors));
  }

  std::vector<std::atomic<FrameFilter*>> slots_;
};

Filters& TheFilters() {
  static auto* const filters = new Filters;  // descriptors are closed until the process ends
  return *filters;
}

std::atomic<bool> filters_in_use = false;  // so that close() costs nothing elsewhere
std::atomic<int64_t> tls_header_block_bytes = 0;

void LogHangUp(const char* why) {
  static auto* const limit = new LogLimit(10);
  if (limit->Admit(SteadyNow()).has_value())
    Log(LogLevel::kWarn, "hung up on a client", {{"why", std::string(why)}});
}

void Forget(void*, void* filter, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<FrameFilter*>(filter);
}

// The filter of a TLS connection of a server; nullptr: there is none.
FrameFilter* FilterOf(SSL* ssl) {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, Forget);
  const int64_t bytes = tls_header_block_bytes.load(std::memory_order_relaxed);
  if (bytes == 0 || SSL_is_server(ssl) == 0) return nullptr;
  if (auto* const filter = static_cast<FrameFilter*>(SSL_get_ex_data(ssl, index))) return filter;
  auto filter = std::make_unique<FrameFilter>(
      bytes, PHASOR_GRPC_BOUNDS_STREAMS ? nullptr : std::make_shared<ResetBudget>(SteadyNow()));
  if (SSL_set_ex_data(ssl, index, filter.get()) == 0) return nullptr;
  return filter.release();
}

// What the client did wrong in the `n` bytes of the message; nullptr: nothing.
const char* ReadMessage(FrameFilter* filter, const msghdr& message, size_t n) {
  const absl::Time now = SteadyNow();
  for (size_t i = 0; i < message.msg_iovlen && n > 0; ++i) {
    const size_t part = std::min(n, message.msg_iov[i].iov_len);
    const auto* const bytes = static_cast<const uint8_t*>(message.msg_iov[i].iov_base);
    if (const char* const wrong = filter->Read({bytes, part}, now)) return wrong;
    n -= part;
  }
  return nullptr;
}

}  // namespace

void FilterReads(int fd, std::unique_ptr<FrameFilter> filter) {
  filters_in_use.store(true, std::memory_order_relaxed);
  TheFilters().Replace(fd, std::move(filter));
}

void FilterTlsReads(int64_t header_block_bytes) {
  int64_t before = tls_header_block_bytes.load();
  while (before < header_block_bytes &&
         !tls_header_block_bytes.compare_exchange_weak(before, header_block_bytes)) {
  }
}

}  // namespace phasor

#define PHASOR_EXPORTED extern "C" __attribute__((visibility("default")))

PHASOR_EXPORTED ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const next = phasor::Next<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t n = next(fd, message, flags);
  if (n <= 0 || (flags & MSG_ERRQUEUE) != 0) return n;
  phasor::FrameFilter* const filter = phasor::TheFilters().Find(fd);
  if (filter == nullptr) return n;
  const char* const wrong = phasor::ReadMessage(filter, *message, static_cast<size_t>(n));
  if (wrong == nullptr) return n;
  phasor::LogHangUp(wrong);
  shutdown(fd, SHUT_RDWR);
  return 0;  // as if the client had hung up
}

PHASOR_EXPORTED int close(int fd) {
  static auto* const next = phasor::Next<int(int)>("close");
  if (phasor::filters_in_use.load(std::memory_order_relaxed)) {
    phasor::TheFilters().Replace(fd, nullptr);
  }
  return next(fd);
}

namespace phasor {
namespace {

int FilteredSslRead(int (*next)(SSL*, void*, int), SSL* ssl, void* buffer, int size) {
  const int n = next(ssl, buffer, size);
  if (n <= 0) return n;
  FrameFilter* const filter = FilterOf(ssl);
  if (filter == nullptr) return n;
  const char* const wrong =
      filter->Read({static_cast<const uint8_t*>(buffer), static_cast<size_t>(n)}, SteadyNow());
  if (wrong == nullptr) return n;
  LogHangUp(wrong);
  SSL_set_shutdown(ssl, SSL_RECEIVED_SHUTDOWN);  // gRPC asks OpenSSL why, and hangs up
  return 0;
}

}  // namespace
}  // namespace phasor

#ifdef PHASOR_WRAP_SSL_READ  // OpenSSL is linked as an archive; the linker has these names
extern "C" int __real_SSL_read(SSL* ssl, void* buffer, int size);
extern "C" int __wrap_SSL_read(SSL* ssl, void* buffer, int size) {
  return phasor::FilteredSslRead(__real_SSL_read, ssl, buffer, size);
}
#else
PHASOR_EXPORTED int SSL_read(SSL* ssl, void* buffer, int size) {
  static auto* const next = phasor::Next<int(SSL*, void*, int)>("SSL_read");
  return phasor::FilteredSslRead(next, ssl, buffer, size);
}
#endif
