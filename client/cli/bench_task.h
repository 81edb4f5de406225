// SPDX-License-Identifier: Apache-2.0
// What `phasor bench` asks of a server, made once and asked again and again.
#ifndef PHASOR_CLIENT_CLI_BENCH_TASK_H_
#define PHASOR_CLIENT_CLI_BENCH_TASK_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/load.h"
#include "client/client.h"

namespace phasor::cli {

enum class BenchMode : uint8_t { kUnary, kStream, kChunks };
std::string_view ModeName(BenchMode mode);

struct BenchOptions {
  Spec spec;
  int64_t tokens = 1;
  int64_t heads = 32;
  Dtype dtype = Dtype::kFloat32;
  BenchMode mode = BenchMode::kUnary;
  bool shared = false;  // in memory that the server maps
};

// A call at positions 0, 1, ... of the first axis. A plain value.
struct BenchTask {
  Spec spec;
  BenchMode mode = BenchMode::kUnary;
  bool shared = false;
  bool rotary = false;
  TensorDesc tensor;  // the encodings, or the tensor that is rotated in place
  PositionList positions;
  int64_t tensor_bytes = 0;

  // Bytes of tensors that a call moves, both ways.
  int64_t call_bytes() const { return rotary ? 2 * tensor_bytes : tensor_bytes; }
};

// ApplyRoPE of [tokens, heads, head_dim] for a rotary spec, else Encode of `tokens` rows. Errors of
// ResolveSpec; INVALID_ARGUMENT: too many bytes, chunks of encodings.
absl::StatusOr<BenchTask> MakeBenchTask(const Client& client, const BenchOptions& options);

// Makes the call once. INTERNAL: the answer is not what this process computes. FAILED_PRECONDITION:
// there is no shared memory.
absl::Status CheckAnswer(const Client& client, const BenchTask& task);

// One operation per worker, each with memory of its own; streams stay open from one to the next.
// Errors of memory as CheckAnswer's; RESOURCE_EXHAUSTED: there is none.
absl::StatusOr<std::vector<Operation>> BenchOperations(const Client& client, const BenchTask& task,
                                                       int workers);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_BENCH_TASK_H_
