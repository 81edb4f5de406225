// SPDX-License-Identifier: Apache-2.0
// Rotations through the client library.
#ifndef PHASOR_BENCH_SERVER_CLIENT_CALLS_H_
#define PHASOR_BENCH_SERVER_CLIENT_CALLS_H_

#include <cstddef>
#include <string>

#include "bench/kernels/jobs.h"
#include "client/client.h"

namespace phasor::bench {

int Cores();

// In process with that many threads; dies where nobody is.
Client ConnectTo(const std::string& target, int inproc_threads = Cores());

// A rotation in place of the case's q, which lies at `data`.
RopeCall CallOf(const RopeCase& test_case, std::byte* data);

// Dies of errors.
void Rotate(const Client& client, const RopeCall& call);

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_SERVER_CLIENT_CALLS_H_
