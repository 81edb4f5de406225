// SPDX-License-Identifier: Apache-2.0
// Moves of keys where they lie: from the arguments of Python, and their results.
// All functions need the interpreter lock.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_MOVES_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_MOVES_H_

#include <nanobind/nanobind.h>

#include "client/connection.h"
#include "client/python/native/borrowed.h"

namespace phasor::python {

// Takes the tuple that client/python/phasor/_moves.py makes: (pools, layouts, specs, layers,
// groups, mode, tolerance or None, pins). Entries of the lists are tuples of the fields of the
// structs in kernels/request/move_keys.h, in their order. Raises InvalidArgument and TypeError for
// pools.
MoveCall ToMoveCall(nb::tuple arguments, Borrowed& borrowed);

nb::dict ToDict(const MoveResult& result);

// Where the pools are in the tuple.
inline constexpr int kMovePools = 0;

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_MOVES_H_
