// SPDX-License-Identifier: Apache-2.0
// Maps memory of clients, and handles SIGBUS.
#include "server/memory/guarded_mapping.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <system_error>

#include "kernels/base/text.h"

namespace phasor::memory {

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
      while (errors_.locked_.test_and_set(std::memory_order_acquire)) {
      }
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

  // Puts zeros in place of the mapping at `address`. False: there is none, or no memory for zeros.
  bool Replace(const std::byte* address) {
    const Lock lock(this);
    const auto after = mappings_.upper_bound(address);
    if (after == mappings_.begin()) return false;
    const GuardedMapping& mapping = *std::prev(after)->second;
    if (address >= mapping.pages_ + mapping.size_) return false;
    if (mapping.lost()) return true;  // another thread was faster
    // Before anybody can read the zeros.
    mapping.lost_.store(true, std::memory_order_release);
    const int protection = PROT_READ | (mapping.writable_ ? PROT_WRITE : 0);
    // Not by mmap(), which tools that check threads and memory intercept.
    const long mapped =  // NOLINT(google-runtime-int): what syscall returns
        syscall(SYS_mmap, mapping.pages_, mapping.size_, protection,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return mapped != -1;
  }

  // Does what would have happened without this handler.
  void PassOn(int signal, siginfo_t* info, void* context) const {
    if ((before_.sa_flags & SA_SIGINFO) != 0) return before_.sa_sigaction(signal, info, context);
    if (before_.sa_handler == SIG_IGN) return;
    if (before_.sa_handler != SIG_DFL) return before_.sa_handler(signal);
    sigaction(SIGBUS, &before_, nullptr);
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
  const auto size = static_cast<size_t>(into_page + bytes);
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
