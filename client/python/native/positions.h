// SPDX-License-Identifier: Apache-2.0
// Positions as Python programs write them. All functions need the interpreter lock.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_POSITIONS_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_POSITIONS_H_

#include <nanobind/nanobind.h>

#include <optional>

#include "client/position_list.h"
#include "client/python/native/borrowed.h"

namespace phasor::python {

// Positions of an int or float (one token), a range, a Grid, a Ragged, a list or an array. Borrows
// dense arrays of int32, int64, float32 and float64; all others are converted exactly.
// Raises InvalidArgument or TypeError with `path`: not positions.
PositionList ImportPositions(nb::handle positions, const char* path, Borrowed& borrowed);

// The same for None, which is nullopt.
std::optional<PositionList> ImportOptionalPositions(nb::handle positions, const char* path,
                                                    Borrowed& borrowed);

// A grid of ranges and numbers, and packed sequences: the native part of Grid and Ragged.
PositionList MakeGrid(nb::sequence axes);
PositionList MakeRagged(nb::sequence lengths, nb::sequence offsets);

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_POSITIONS_H_
