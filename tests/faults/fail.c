// SPDX-License-Identifier: Apache-2.0
// Makes system calls of a program fail, when it is loaded before all others (LD_PRELOAD). The file
// that PHASOR_FAULTS names says which call fails, how and how often; it is mapped, so that the test
// can change it while the program runs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct Fault {
  char call[32];           // name; empty: none
  int32_t error;           // errno; 0: the call is short, for those that transfer bytes
  int32_t every;           // of so many calls one fails
  int64_t least_bytes;     // only calls of at least so many bytes
  int64_t clock_offset_s;  // added to the wall clock
  int64_t skip;            // so many calls succeed first
  _Atomic int64_t calls;   // calls of this name
  _Atomic int64_t failed;
};

static struct Fault* fault;

__attribute__((constructor)) static void MapFault(void) {
  const char* const path = getenv("PHASOR_FAULTS");
  const int fd = path == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void* const mapped = (void*)syscall(SYS_mmap, NULL, sizeof(struct Fault), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (mapped != MAP_FAILED) fault = mapped;
}

// Writes where the program crashed; then the instruction runs again and ends it. Threads may crash together.
static void OnCrash(int number) {
  void* frames[3];  // this function, the return of the signal, the crash
  const int count = backtrace(frames, 3);
  static const char kWhat[] = "crashed in ";
  if (count == 3 && write(2, kWhat, sizeof(kWhat) - 1) > 0) backtrace_symbols_fd(frames + 2, 1, 2);
  signal(number, SIG_DFL);
}

__attribute__((constructor)) static void WatchForCrashes(void) {
  void* frame;
  backtrace(&frame, 1);  // takes its memory now, when there is some
  struct sigaction action = {.sa_handler = OnCrash};
  sigaction(SIGSEGV, &action, NULL);
}

// Whether this call has to fail; sets errno unless it is to be short.
static int Fails(const char* name, int64_t bytes) {
  if (fault == NULL || strcmp(fault->call, name) != 0 || bytes < fault->least_bytes) return 0;
  const int64_t number = atomic_fetch_add(&fault->calls, 1) - fault->skip;
  if (number < 0 || number % fault->every != 0) return 0;
  atomic_fetch_add(&fault->failed, 1);
  if (fault->error != 0) errno = fault->error;
  return 1;
}

#define NEXT(name) \
  static __typeof__(name)* next; \
  if (next == NULL) next = (__typeof__(name)*)dlsym(RTLD_NEXT, #name)

int accept4(int fd, struct sockaddr* address, socklen_t* size, int flags) {
  NEXT(accept4);
  return Fails("accept4", 0) ? -1 : next(fd, address, size, flags);
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  NEXT(recvmsg);
  if (!Fails("recvmsg", 0)) return next(fd, message, flags);
  if (fault->error != 0) return -1;
  struct iovec one = {message->msg_iov[0].iov_base, 1};
  struct msghdr small = *message;
  small.msg_iov = &one;
  small.msg_iovlen = 1;
  return next(fd, &small, flags);
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  NEXT(sendmsg);
  if (!Fails("sendmsg", 0)) return next(fd, message, flags);
  if (fault->error != 0) return -1;
  if (message->msg_iovlen == 0 || message->msg_iov[0].iov_len == 0) return next(fd, message, flags);
  struct iovec one = {message->msg_iov[0].iov_base, 1};
  struct msghdr small = *message;
  small.msg_iov = &one;
  small.msg_iovlen = 1;
  return next(fd, &small, flags);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  NEXT(write);
  if (!Fails("write", (int64_t)bytes)) return next(fd, data, bytes);
  return fault->error != 0 ? -1 : next(fd, data, bytes > 1 ? bytes / 2 : bytes);
}

ssize_t read(int fd, void* data, size_t bytes) {
  NEXT(read);
  if (!Fails("read", (int64_t)bytes)) return next(fd, data, bytes);
  return fault->error != 0 ? -1 : next(fd, data, bytes > 1 ? bytes / 2 : bytes);
}

int open(const char* path, int flags, ...) {
  NEXT(open);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (mode_t)va_arg(rest, int);
  va_end(rest);
  return Fails("open", 0) ? -1 : next(path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  NEXT(fopen);
  return Fails("fopen", 0) ? NULL : next(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  NEXT(fopen64);
  return Fails("fopen", 0) ? NULL : next(path, mode);
}

int ftruncate(int fd, off_t bytes) {
  NEXT(ftruncate);
  return Fails("ftruncate", 0) ? -1 : next(fd, bytes);
}

int posix_fallocate(int fd, off_t from, off_t bytes) {
  NEXT(posix_fallocate);
  return Fails("posix_fallocate", 0) ? fault->error : next(fd, from, bytes);
}

int mkostemp(char* pattern, int flags) {
  NEXT(mkostemp);
  return Fails("mkostemp", 0) ? -1 : next(pattern, flags);
}

int shm_open(const char* name, int flags, mode_t mode) {
  NEXT(shm_open);
  return Fails("shm_open", 0) ? -1 : next(name, flags, mode);
}

void* mmap(void* where, size_t bytes, int access, int flags, int fd, off_t offset) {
  NEXT(mmap);
  return Fails("mmap", (int64_t)bytes) ? MAP_FAILED : next(where, bytes, access, flags, fd, offset);
}

int memfd_create(const char* name, unsigned flags) {
  NEXT(memfd_create);
  return Fails("memfd_create", 0) ? -1 : next(name, flags);
}

int fsync(int fd) {
  NEXT(fsync);
  return Fails("fsync", 0) ? -1 : next(fd);
}

int rename(const char* from, const char* to) {
  NEXT(rename);
  return Fails("rename", 0) ? -1 : next(from, to);
}

int epoll_wait(int fd, struct epoll_event* events, int most, int timeout) {
  NEXT(epoll_wait);
  return Fails("epoll_wait", 0) ? -1 : next(fd, events, most, timeout);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  NEXT(pthread_create);
  return Fails("pthread_create", 0) ? fault->error : next(thread, attributes, run, argument);
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  NEXT(clock_gettime);
  const int result = next(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME && fault != NULL) time->tv_sec += fault->clock_offset_s;
  return result;
}
