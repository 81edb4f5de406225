// SPDX-License-Identifier: Apache-2.0
// Makes the calls of `phasor bench`, and checks one answer before they are measured.
#include "client/cli/bench_task.h"

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/tensor/tensor_desc.h"

namespace phasor::cli {
namespace {

EncodeCall Encoding(const BenchTask& task, const SharedMemory& output) {
  return {.spec = task.spec,
          .positions = task.positions,
          .output_dtype = task.tensor.dtype,
          .output = MutableTensorView{task.tensor, output.data(), output.size()}};
}

RopeCall Rotation(const BenchTask& task, const SharedMemory& in_place) {
  return {.spec = task.spec,
          .positions = task.positions,
          .tensors = {MutableTensorView{task.tensor, in_place.data(), in_place.size()}}};
}

// Random numbers in [1, 2) of the tensor's type, in memory that `client` can use.
absl::StatusOr<SharedMemory> Numbers(const Client& client, const BenchTask& task, bool shared) {
  PHASOR_ASSIGN_OR_RETURN(SharedMemory bytes, shared ? client.AllocateShared(task.tensor_bytes)
                                                     : SharedMemory::Ordinary(task.tensor_bytes));
  if (shared && !bytes.shared()) {
    return absl::FailedPreconditionError(
        "--shared: not shared; the server must be on this host, run with --lease-socket, and take "
        "that much");
  }
  std::minstd_rand random(1);
  const Dtype dtype = task.tensor.dtype;
  for (int64_t at = 0; at < bytes.size(); at += SizeOf(dtype)) {
    const uint64_t fraction = random();
    uint64_t bits = 0x3FF0000000000000 | fraction << 20;
    if (dtype == Dtype::kFloat32) bits = 0x3F800000 | (fraction & 0x7FFFFF);
    if (dtype == Dtype::kBFloat16) bits = 0x3F80 | (fraction & 0x7F);
    if (dtype == Dtype::kFloat16) bits = 0x3C00 | (fraction & 0x3FF);
    std::memcpy(bytes.data() + at, &bits, static_cast<size_t>(SizeOf(dtype)));
  }
  return bytes;
}

absl::Status CallOnce(const Client& client, const BenchTask& task, BenchMode mode,
                      const SharedMemory& memory) {
  if (!task.rotary) return client.Encode(Encoding(task, memory)).status();
  if (mode == BenchMode::kChunks) return client.ApplyRoPEInChunks(Rotation(task, memory)).status();
  return client.ApplyRoPE(Rotation(task, memory)).status();
}

// Sends one item at a time over a stream, and opens the stream again when it has ended.
template <typename Stream, typename Call>
class StreamedOperation {
 public:
  using Open = std::function<std::unique_ptr<Stream>()>;

  StreamedOperation(Open open, Call call) : open_(std::move(open)), call_(std::move(call)) {}

  absl::Status operator()() {
    if (stream_ == nullptr) stream_ = open_();
    if (stream_->Write(0, call_).ok()) {
      auto answer = stream_->Read();
      if (answer.has_value()) return answer->result.status();
    }
    absl::Status status = stream_->Finish();
    stream_ = nullptr;
    return status.ok() ? absl::UnavailableError("stream: ended by the server; open another one")
                       : status;
  }

 private:
  Open open_;
  Call call_;
  std::shared_ptr<Stream> stream_;  // shared, because an Operation must be copyable
};

// The operation keeps `memory` alive.
Operation MakeOperation(const Client& client, const BenchTask& task,
                        const std::shared_ptr<SharedMemory>& memory) {
  if (task.mode != BenchMode::kStream) {
    return [=] { return CallOnce(client, task, task.mode, *memory); };
  }
  const CallOptions endless = {.timeout = absl::InfiniteDuration()};
  if (task.rotary) {
    StreamedOperation<RopeStream, RopeCall> operation(
        [=] { return client.StreamApplyRoPE(endless); }, Rotation(task, *memory));
    return [memory, operation]() mutable { return operation(); };
  }
  StreamedOperation<EncodeStream, EncodeCall> operation(
      [=] { return client.StreamEncode(endless); }, Encoding(task, *memory));
  return [memory, operation]() mutable { return operation(); };
}

PositionList FirstPositions(int64_t tokens, int axes) {
  if (axes == 1) return IntegerRange{.count = tokens};
  PositionGrid grid;
  grid.axes.assign(static_cast<size_t>(axes), IntegerRange{.count = 1});
  grid.axes[0] = IntegerRange{.count = tokens};
  return grid;
}

}  // namespace

std::string_view ModeName(BenchMode mode) {
  switch (mode) {
    case BenchMode::kUnary:
      return "UNARY";
    case BenchMode::kStream:
      return "STREAM";
    case BenchMode::kChunks:
      return "CHUNKS";
  }
  return "?";
}

absl::StatusOr<BenchTask> MakeBenchTask(const Client& client, const BenchOptions& options) {
  PHASOR_ASSIGN_OR_RETURN(const SpecDetails details, client.ResolveSpec(options.spec));
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, ResolveSpec(details.spec));
  BenchTask task{.spec = options.spec,
                 .mode = options.mode,
                 .shared = options.shared,
                 .rotary = resolved.kind == SpecKind::kRotary,
                 .tensor = {options.dtype, {options.tokens, details.width}, {}},
                 .positions = FirstPositions(options.tokens, resolved.axes)};
  if (task.mode == BenchMode::kChunks && !task.rotary) {
    return Invalid("--mode: chunks; must be unary or stream for encodings");
  }
  if (task.mode != BenchMode::kUnary && task.shared) {
    return Invalid("--shared: only plain calls use shared memory; must be with --mode=unary");
  }
  if (task.rotary) task.tensor.shape = {options.tokens, options.heads, details.width};
  PHASOR_ASSIGN_OR_RETURN(task.tensor_bytes, DenseBytes(task.tensor, "--tokens"));
  return task;
}

absl::Status CheckAnswer(const Client& client, const BenchTask& task) {
  PHASOR_ASSIGN_OR_RETURN(const SharedMemory theirs, Numbers(client, task, task.shared));
  PHASOR_ASSIGN_OR_RETURN(const SharedMemory ours, Numbers(client, task, false));
  PHASOR_RETURN_IF_ERROR(CallOnce(client, task, task.mode, theirs));
  PHASOR_ASSIGN_OR_RETURN(const Client inproc, Client::Connect("inproc:"));
  PHASOR_RETURN_IF_ERROR(CallOnce(inproc, task, BenchMode::kUnary, ours));
  if (std::memcmp(ours.data(), theirs.data(), static_cast<size_t>(ours.size())) == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      "answer: not the bytes that this program computes; is the server of another version?");
}

absl::StatusOr<std::vector<Operation>> BenchOperations(const Client& client, const BenchTask& task,
                                                       int workers) {
  std::vector<Operation> operations;
  for (int i = 0; i < workers; ++i) {
    PHASOR_ASSIGN_OR_RETURN(SharedMemory memory, Numbers(client, task, task.shared));
    operations.push_back(
        MakeOperation(client, task, std::make_shared<SharedMemory>(std::move(memory))));
  }
  return operations;
}

}  // namespace phasor::cli
