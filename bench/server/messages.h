// SPDX-License-Identifier: Apache-2.0
// Requests as bytes, and answers checked against the reference backend.
#ifndef PHASOR_BENCH_SERVER_MESSAGES_H_
#define PHASOR_BENCH_SERVER_MESSAGES_H_

#include <grpcpp/support/byte_buffer.h>

#include "bench/harness.h"
#include "bench/kernels/jobs.h"

namespace phasor::bench {

grpc::ByteBuffer EncodeMessage(const EncodeCase& test_case);
// The same as one message of a stream, and as `items` items of a batch, each at other positions.
grpc::ByteBuffer StreamEncodeMessage(const EncodeCase& test_case);
grpc::ByteBuffer BatchEncodeMessage(const EncodeCase& test_case, int items);

// A case with one tensor (no k) at positions 0, 1, ... The message refers to `x`, which must
// outlive it and the calls that send it.
RopeCase RopeOf(int64_t payload_bytes);
grpc::ByteBuffer RopeMessage(const RopeCase& test_case, const Memory& x);

// Die unless the answer is what the reference backend computes.
void CheckEncodeAnswer(const EncodeCase& test_case, grpc::ByteBuffer answer);
void CheckStreamEncodeAnswer(const EncodeCase& test_case, grpc::ByteBuffer answer);
void CheckBatchEncodeAnswer(const EncodeCase& test_case, int items, grpc::ByteBuffer answer);
void CheckRopeAnswer(const RopeCase& test_case, const Memory& x, grpc::ByteBuffer answer,
                     bool sample);

}  // namespace phasor::bench

#endif  // PHASOR_BENCH_SERVER_MESSAGES_H_
