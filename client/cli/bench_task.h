// SPDX-License-Identifier: Apache-2.0
// The call that `phasor bench` repeats.
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
  bool shared = false;  // tensors in memory that the server maps
};

// A call at positions 0, 1, ... of the first axis. A plain value.
struct BenchTask {
  Spec spec;
  BenchMode mode = BenchMode::kUnary;
  bool shared = false;
  bool rotary = false;
  TensorDesc tensor;  // the rows of Encode, or the tensor that is rotated in place
  PositionList positions;
  int64_t tensor_bytes = 0;

  // Bytes of tensors that one call moves, in both directions together.
  int64_t call_bytes() const { return rotary ? 2 * tensor_bytes : tensor_bytes; }
};

// Makes an ApplyRoPE of [tokens, heads, head_dim] for a rotary spec, otherwise an Encode of
// `tokens` rows. Errors: those of ResolveSpec; INVALID_ARGUMENT for too many bytes, or for kChunks
// with a spec that is not rotary.
absl::StatusOr<BenchTask> MakeBenchTask(const Client& client, const BenchOptions& options);

// Makes the call once and compares the answer with what this process computes. INTERNAL: they
// differ. FAILED_PRECONDITION: shared memory was asked for and there is none.
absl::Status CheckAnswer(const Client& client, const BenchTask& task);

// One operation per worker, each with its own memory. Streams stay open between operations. Errors
// of memory are as in CheckAnswer; RESOURCE_EXHAUSTED: memory cannot be allocated.
absl::StatusOr<std::vector<Operation>> BenchOperations(const Client& client, const BenchTask& task,
                                                       int workers);

}  // namespace phasor::cli

#endif  // PHASOR_CLIENT_CLI_BENCH_TASK_H_
