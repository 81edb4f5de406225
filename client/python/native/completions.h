// SPDX-License-Identifier: Apache-2.0
// Completions: how calls that nobody waits for tell an event loop that they are done.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_COMPLETIONS_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_COMPLETIONS_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "client/python/native/borrowed.h"

namespace phasor::python {

// Makes the Python result of a call, or its exception. Runs with the interpreter lock.
using MakeResult = absl::AnyInvocable<nb::object()>;

// A list of calls that are done, with an eventfd that is readable while the list is not empty.
// Threads: any. Copies share the list.
class Completions {
 public:
  Completions();

  int fd() const { return state_->fd; }
  // Adds a call. Needs no interpreter lock. `token` belongs to `borrowed`.
  void Add(PyObject* token, MakeResult make, Borrowed borrowed) const;
  // Removes all calls: a list of (token, result or exception). Needs the interpreter lock.
  nb::list Drain() const;

 private:
  struct Completed {
    PyObject* token;
    MakeResult make;
    Borrowed borrowed;
  };
  struct State {
    ~State();
    int fd = -1;
    std::mutex mutex;
    std::vector<Completed> completed;
  };
  std::shared_ptr<State> state_;
};

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_COMPLETIONS_H_
