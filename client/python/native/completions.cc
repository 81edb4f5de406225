// SPDX-License-Identifier: Apache-2.0
// Collects the answers of asynchronous calls and wakes their event loop.
#include "client/python/native/completions.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "client/python/native/helpers.h"

namespace phasor::python {

Completions::Completions() : state_(std::make_shared<State>()) {
  state_->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (state_->fd < 0) {
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
}

Completions::State::~State() {
  if (fd >= 0) close(fd);
}

void Completions::Add(PyObject* token, MakeResult make, Borrowed borrowed) const {
  bool first = false;
  {
    std::lock_guard lock(state_->mutex);
    first = state_->completed.empty();
    state_->completed.push_back({token, std::move(make), std::move(borrowed)});
  }
  if (!first) return;  // the loop is awake: Drain empties the eventfd before it takes the list
  const uint64_t one = 1;
  while (write(state_->fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

nb::list Completions::Drain() const {
  uint64_t count = 0;
  while (read(state_->fd, &count, sizeof count) < 0 && errno == EINTR) continue;
  std::vector<Completed> completed;
  {
    std::lock_guard lock(state_->mutex);
    completed.swap(state_->completed);
  }
  nb::list results;
  for (Completed& one : completed) {
    results.append(
        nb::make_tuple(nb::borrow(one.token), ObjectOrException([&] { return one.make(); })));
  }
  return results;
}

}  // namespace phasor::python
