// SPDX-License-Identifier: Apache-2.0
// Services that compute nothing. Their time is the price of gRPC, which no server can go below.
#ifndef PHASOR_BENCH_SERVER_ECHO_H_
#define PHASOR_BENCH_SERVER_ECHO_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>

#include "absl/time/time.h"

namespace phasor::bench {

// Answers ApplyRoPE with the request's bytes: received memory is sent as it is. Answers Encode, and
// each message of StreamEncode, with `reply_bytes` bytes. Encode first occupies its thread for
// `busy`.
std::unique_ptr<grpc::Service> MakeEchoService(int64_t reply_bytes, absl::Duration busy = {});

// Answers ApplyRoPE with a copy of the request's bytes in one piece of pooled memory. A server that
// writes its result to other memory reads and writes each byte once too, whatever it computes.
std::unique_ptr<grpc::Service> MakeCopyingService();

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_SERVER_ECHO_H_
