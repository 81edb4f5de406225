// SPDX-License-Identifier: Apache-2.0
// Calls of the client library from the arguments of Python functions.
// All functions need the interpreter lock.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_CALLS_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_CALLS_H_

#include <nanobind/nanobind.h>

#include "client/connection.h"
#include "client/python/native/borrowed.h"

namespace phasor::python {

// Each function takes one tuple, which client/python/phasor/_calls.py makes, and imports its
// arrays. Raises InvalidArgument and TypeError with the path of the argument.

// None, or (fingerprint, numerics_version, backend).
Pins ToPins(nb::handle pins);

// (spec, positions, tensors, outputs, layout, direction, from_positions, from_spec, inv_scales,
// pages, pins). `inv_scales` is None or a tuple of one number or None per tensor. `pages` is None
// or (values, key_cache, value_cache, slot_mapping, value_inv_scale).
RopeCall ToRopeCall(nb::tuple arguments, Borrowed& borrowed);

// (spec or None, positions, dtype, form, add_to, scale, output, table or None, clip, pins)
EncodeCall ToEncodeCall(nb::tuple arguments, Borrowed& borrowed);

// (preset, family or -1, fields, heads, queries, keys, table, dtype, add_to, output, pins).
// `fields` is a dict of num_buckets, max_distance, bidirectional and window. `table` is None, a
// name or an array.
BiasCall ToBiasCall(nb::tuple arguments, Borrowed& borrowed);

// The batch entries of positions that gave `rows` rows, or 0 if they have no batch dimension.
int64_t BatchOf(const PositionList& positions, int64_t rows);

// Where the outputs are in the tuples.
inline constexpr int kRopeOutputs = 3, kRopePages = 9, kEncodeOutput = 6, kBiasOutput = 9;

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_CALLS_H_
