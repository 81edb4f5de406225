// SPDX-License-Identifier: Apache-2.0
// Changes the schedule of a program's threads at random, when it is loaded before all others
// (LD_PRELOAD): around every lock and unlock of a mutex and every use of a condition variable a
// thread may give up its turn or sleep for up to 0.1 ms, and waits may end early, as they may
// anyway. PHASOR_SCHEDULE_SEED is the seed. Says at the end how often it did so.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static _Atomic uint64_t threads, yields, sleeps, early;
static uint64_t seed;
static _Thread_local uint64_t state;

__attribute__((constructor)) static void ReadSeed(void) {
  const char* const text = getenv("PHASOR_SCHEDULE_SEED");
  seed = text == NULL ? 1 : strtoull(text, NULL, 10);
}

__attribute__((destructor)) static void Say(void) {
  fprintf(stderr, "SCHEDULE threads %lu yields %lu sleeps %lu early %lu\n", (unsigned long)threads,
          (unsigned long)yields, (unsigned long)sleeps, (unsigned long)early);
}

// splitmix64, a sequence for each thread.
static uint64_t Draw(void) {
  if (state == 0) state = seed * 0x9E3779B97F4A7C15u + (atomic_fetch_add(&threads, 1) + 1) * 0xBF58476D1CE4E5B9u;
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static void Boundary(void) {
  const uint64_t draw = Draw();
  if (draw % 8 == 0) {
    atomic_fetch_add_explicit(&yields, 1, memory_order_relaxed);
    sched_yield();
  } else if (draw % 64 == 1) {
    atomic_fetch_add_explicit(&sleeps, 1, memory_order_relaxed);
    const struct timespec time = {0, (long)((draw >> 32) % 100000)};
    nanosleep(&time, NULL);
  }
}

// The newest version of a name: the oldest of condition variables has another layout.
#define NEXT(name, version) \
  static __typeof__(name)* next; \
  if (next == NULL) next = (__typeof__(name)*)dlvsym(RTLD_NEXT, #name, version)

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  NEXT(pthread_mutex_lock, "GLIBC_2.2.5");
  Boundary();
  return next(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  NEXT(pthread_mutex_unlock, "GLIBC_2.2.5");
  const int result = next(mutex);
  Boundary();
  return result;
}

// Whether a wait ends before it has begun. Others have had the mutex meanwhile.
static int EndsEarly(pthread_mutex_t* mutex) {
  if (Draw() % 8 != 0) return 0;
  atomic_fetch_add_explicit(&early, 1, memory_order_relaxed);
  pthread_mutex_unlock(mutex);
  pthread_mutex_lock(mutex);
  return 1;
}

int pthread_cond_wait(pthread_cond_t* changed, pthread_mutex_t* mutex) {
  NEXT(pthread_cond_wait, "GLIBC_2.3.2");
  return EndsEarly(mutex) ? 0 : next(changed, mutex);
}

int pthread_cond_timedwait(pthread_cond_t* changed, pthread_mutex_t* mutex, const struct timespec* until) {
  NEXT(pthread_cond_timedwait, "GLIBC_2.3.2");
  return EndsEarly(mutex) ? 0 : next(changed, mutex, until);
}

int pthread_cond_clockwait(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  NEXT(pthread_cond_clockwait, "GLIBC_2.34");
  return EndsEarly(mutex) ? 0 : next(changed, mutex, clock, until);
}

int pthread_cond_signal(pthread_cond_t* changed) {
  NEXT(pthread_cond_signal, "GLIBC_2.3.2");
  Boundary();
  return next(changed);
}

int pthread_cond_broadcast(pthread_cond_t* changed) {
  NEXT(pthread_cond_broadcast, "GLIBC_2.3.2");
  Boundary();
  return next(changed);
}
