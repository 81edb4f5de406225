// SPDX-License-Identifier: Apache-2.0
#include "client/python/native/gil.h"

#include <unistd.h>

namespace phasor::python {

void StopForEver() {
  while (true) pause();
}

WithoutLock::WithoutLock() : state_(PyEval_SaveThread()) {}
WithoutLock::~WithoutLock() {
  TakingLock([this] { PyEval_RestoreThread(state_); });
}

WithLock::WithLock() : state_(TakingLock([] { return PyGILState_Ensure(); })) {}
WithLock::~WithLock() { PyGILState_Release(state_); }

}  // namespace phasor::python
