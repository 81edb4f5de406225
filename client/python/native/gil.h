// SPDX-License-Identifier: Apache-2.0
// Gives up and takes the interpreter lock.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_GIL_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_GIL_H_

#include <nanobind/nanobind.h>

#include <exception>

namespace phasor::python {

[[noreturn]] void StopForEver();

// Runs `function`, which may take the interpreter lock. While the interpreter ends, Python before
// 3.14 ends every other thread that wants the lock with pthread_exit(), which unwinds its stack: a
// destructor or a `catch (...)` on the way aborts the process. Such a thread stops here for ever
// instead, as Python 3.14 lets it.
template <typename Function>
auto TakingLock(Function function) {
  try {
    return function();
  } catch (const std::exception&) {
    throw;
  } catch (...) {  // pthread_exit()
    StopForEver();
  }
}

// Gives up the lock for as long as it lives.
class WithoutLock {
 public:
  WithoutLock();
  ~WithoutLock();
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* const state_;
};

// Holds the lock for as long as it lives, on any thread.
class WithLock {
 public:
  WithLock();
  ~WithLock();
  WithLock(const WithLock&) = delete;
  WithLock& operator=(const WithLock&) = delete;

 private:
  const PyGILState_STATE state_;
};

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_GIL_H_
