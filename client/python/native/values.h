// SPDX-License-Identifier: Apache-2.0
// Answers of a server as dictionaries, from which the Python layer makes its own classes.
// All functions need the interpreter lock.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_VALUES_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_VALUES_H_

#include <nanobind/nanobind.h>

#include "client/connection.h"
#include "client/options.h"
#include "client/python/native/borrowed.h"

namespace phasor::python {

nb::dict ToDict(const Preset& preset);
nb::dict ToDict(const ServerInfo& info);
nb::dict ToDict(const SpecDetails& details);
nb::list ToList(const ModelDetails& model);
nb::dict ToDict(const TableInfo& table);

// A time that is over at once for NaN and minus infinity, which absl would take for endless.
absl::Duration ToDuration(double seconds);

// The options of _client.py. Raises KeyError: an option is missing. Raises TypeError with its name.
ClientOptions ToClientOptions(nb::dict options);

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_VALUES_H_
