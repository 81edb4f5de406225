// SPDX-License-Identifier: Apache-2.0
// Knows the main thread and counts forks.
#include "client/python/native/waiting.h"

#include <pthread.h>

#include <atomic>

namespace phasor::python {
namespace {

std::atomic<int> fork_generation = 0;
std::atomic<pthread_t> main_thread;

// Python runs signal handlers on the thread that called fork().
void AfterForkInChild() {
  ++fork_generation;
  main_thread = pthread_self();
}

// The module may be imported on any thread.
const bool installed = [] {
  pthread_atfork(nullptr, nullptr, &AfterForkInChild);
  return true;
}();

}  // namespace

int ForkGeneration() { return fork_generation.load(std::memory_order_relaxed); }

void SetMainThread(uintptr_t thread) { main_thread = static_cast<pthread_t>(thread); }

bool OnMainThread() {
  return pthread_equal(main_thread.load(std::memory_order_relaxed), pthread_self()) != 0;
}

bool Interrupted() {
  if (!OnMainThread()) return false;
  const WithLock lock;
  return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
}

}  // namespace phasor::python
