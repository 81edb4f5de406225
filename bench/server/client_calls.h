// SPDX-License-Identifier: Apache-2.0
// Rotations through the client library.
#ifndef PHASOR_BENCH_SERVER_CLIENT_CALLS_H_
#define PHASOR_BENCH_SERVER_CLIENT_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/kernels/jobs.h"
#include "client/client.h"

namespace phasor::bench {

int Cores();

// Connects in process with `inproc_threads` threads, or to a server. Dies if nobody answers.
// Tensors that are not shared travel in the message, unless the client may stage them in
// `staging_bytes`.
Client ConnectTo(const std::string& target, int inproc_threads = Cores(),
                 int64_t staging_bytes = 0);

// A rotation in place of the case's q, which starts at `data`.
RopeCall CallOf(const RopeCase& test_case, std::byte* data);

// Dies on an error.
void Rotate(const Client& client, const RopeCall& call);

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_SERVER_CLIENT_CALLS_H_
