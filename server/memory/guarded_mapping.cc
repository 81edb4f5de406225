// SPDX-License-Identifier: Apache-2.0
// Maps memory of clients, and handles SIGBUS.
#include "server/memory/guarded_mapping.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>

#include "kernels/base/text.h"

namespace phasor::memory {
namespace {

// What replaces a lost mapping has at least so many bytes, and is mapped at most so often: the
// system allows a process 65530 mappings.
constexpr size_t kReplacement = size_t{64} << 10;
constexpr size_t kMostParts = 1024;

// A system call, with arguments as wide as the kernel takes them.
template <typename... Arguments>
int64_t Call(int64_t number, Arguments... arguments) {
  return syscall(number, static_cast<int64_t>(arguments)...);
}

size_t RoundUp(size_t bytes, size_t page) { return (bytes + page - 1) / page * page; }

}  // namespace

// The guarded mappings of this process, and the handler that looks them up.
//
// The handler may run at any instruction of any thread, so it uses only a lock that spins, and
// system calls. It cannot wait for its own thread: a thread that holds the lock touches no guarded
// memory, and signals that other processes send do not reach the lock.
class BusErrors {
 public:
  // Installs the handler at the first call.
  static BusErrors& Get() {
    static BusErrors* const errors = new BusErrors;
    return *errors;
  }

  void Add(const GuardedMapping* mapping) {
    const Lock lock(this);
    mappings_[mapping->pages_] = mapping;
  }

  void Remove(const GuardedMapping* mapping) {
    const Lock lock(this);
    mappings_.erase(mapping->pages_);
  }

 private:
  class Lock {
   public:
    explicit Lock(BusErrors* errors) : errors_(*errors) {
      while (errors_.locked_.test_and_set(std::memory_order_acquire)) sched_yield();
    }
    ~Lock() { errors_.locked_.clear(std::memory_order_release); }

   private:
    BusErrors& errors_;
  };

  BusErrors() {
    instance_ = this;
    struct sigaction action = {};
    action.sa_sigaction = &Handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before_);
  }

  static void Handle(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    const bool replaced =
        info->si_code == BUS_ADRERR && instance_->Replace(static_cast<std::byte*>(info->si_addr));
    if (!replaced) instance_->PassOn(signal, info, context);
    errno = error;
  }

  // Puts other memory in place of the mapping at `address`. False: there is none, or no memory.
  bool Replace(const std::byte* address) {
    const Lock lock(this);
    const auto after = mappings_.upper_bound(address);
    if (after == mappings_.begin()) return false;
    const GuardedMapping& mapping = *std::prev(after)->second;
    if (address >= mapping.pages_ + mapping.size_) return false;
    if (mapping.replaced_) return true;                    // another thread was faster
    mapping.lost_.store(true, std::memory_order_release);  // before anybody can read the zeros
    mapping.replaced_ = ReplacePages(mapping);
    return mapping.replaced_;
  }

  // Maps the same few pages at all addresses of the mapping. Private pages would cost this process
  // as much memory as the client made the region large. Uses system calls alone, because tools that
  // check threads and memory intercept the functions.
  static bool ReplacePages(const GuardedMapping& mapping) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t chunk = std::max(kReplacement, RoundUp(mapping.size_ / kMostParts, page));
    const int64_t fd =
        Call(SYS_memfd_create, reinterpret_cast<intptr_t>("phasor-lost"), MFD_CLOEXEC);
    if (fd < 0) return false;
    const int64_t protection = PROT_READ | (mapping.writable_ ? PROT_WRITE : 0);
    bool mapped = Call(SYS_fallocate, fd, 0, 0, chunk) == 0;
    for (size_t at = 0; mapped && at < mapping.size_; at += chunk) {
      const auto address = reinterpret_cast<intptr_t>(mapping.pages_ + at);
      mapped = Call(SYS_mmap, address, std::min(chunk, mapping.size_ - at), protection,
                    MAP_SHARED | MAP_FIXED, fd, 0) != -1;
    }
    Call(SYS_close, fd);
    return mapped;
  }

  // Does what would have happened without this handler.
  void PassOn(int signal, siginfo_t* info, void* context) const {
    if ((before_.sa_flags & SA_SIGINFO) != 0) return before_.sa_sigaction(signal, info, context);
    const bool was_sent = info->si_code <= 0;  // by a process, so that nothing faults again
    if (before_.sa_handler == SIG_IGN && was_sent) return;
    if (before_.sa_handler != SIG_IGN && before_.sa_handler != SIG_DFL) {
      return before_.sa_handler(signal);
    }
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &action, nullptr);
    raise(SIGBUS);  // ends the process when the handler returns
  }

  static BusErrors* instance_;
  struct sigaction before_ = {};
  std::atomic_flag locked_;
  std::map<const std::byte*, const GuardedMapping*> mappings_;  // by their first pages
};

BusErrors* BusErrors::instance_ = nullptr;

absl::StatusOr<std::unique_ptr<const GuardedMapping>> GuardedMapping::Map(int fd, int64_t offset,
                                                                          int64_t bytes,
                                                                          bool writable) {
  const int64_t into_page = offset % sysconf(_SC_PAGESIZE);
  const size_t size =
      RoundUp(static_cast<size_t>(into_page + bytes), static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  void* const pages = mmap(nullptr, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd,
                           offset - into_page);
  if (pages == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        StrCat(bytes, " bytes cannot be mapped (", std::generic_category().message(errno), ")"));
  }
  auto* const first = static_cast<std::byte*>(pages);
  std::unique_ptr<const GuardedMapping> mapping(
      new GuardedMapping(first, size, first + into_page, writable));
  BusErrors::Get().Add(mapping.get());
  return mapping;
}

GuardedMapping::~GuardedMapping() {
  BusErrors::Get().Remove(this);
  munmap(pages_, size_);
}

}  // namespace phasor::memory
