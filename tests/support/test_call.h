// SPDX-License-Identifier: Apache-2.0
// Calls for tests of the engine, and the place of their answers.
#ifndef PHASOR_TESTS_SUPPORT_TEST_CALL_H_
#define PHASOR_TESTS_SUPPORT_TEST_CALL_H_

#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/engine/call.h"

namespace phasor::engine {

// What became of a call. Outlives it. Threads: any.
class Answer {
 public:
  // Blocks until the call is answered.
  const absl::StatusOr<Result>& Wait() {
    MutexLock lock(&mu_);
    while (!result_.has_value()) changed_.Wait(&mu_);
    return *result_;
  }
  bool answered() {
    MutexLock lock(&mu_);
    return result_.has_value();
  }
  int times_answered() {
    MutexLock lock(&mu_);
    return times_;
  }
  int times_released() {
    MutexLock lock(&mu_);
    return released_;
  }
  std::thread::id thread() {
    MutexLock lock(&mu_);
    return thread_;
  }
  // Drops the response, as gRPC does when it was sent.
  void Forget() {
    MutexLock lock(&mu_);
    result_ = absl::UnknownError("forgotten");
  }

  void Cancel() {
    MutexLock lock(&mu_);
    cancelled_ = true;
  }
  bool cancelled() {
    MutexLock lock(&mu_);
    return cancelled_;
  }

  bool admitted() {
    MutexLock lock(&mu_);
    return admitted_;
  }
  void SetAdmitted() {
    MutexLock lock(&mu_);
    admitted_ = true;
  }

  void Set(absl::StatusOr<Result> result) {
    MutexLock lock(&mu_);
    ++times_;
    thread_ = std::this_thread::get_id();
    result_ = std::move(result);
    changed_.SignalAll();
  }
  void SetReleased() {
    MutexLock lock(&mu_);
    ++released_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<absl::StatusOr<Result>> result_ ABSL_GUARDED_BY(mu_);
  std::thread::id thread_ ABSL_GUARDED_BY(mu_);
  int times_ ABSL_GUARDED_BY(mu_) = 0;
  int released_ ABSL_GUARDED_BY(mu_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool admitted_ ABSL_GUARDED_BY(mu_) = false;
};
using AnswerRef = std::shared_ptr<Answer>;

class TestCall final : public Call {
 public:
  explicit TestCall(AnswerRef answer, uint64_t client = 0)
      : answer_(std::move(answer)), client_(client) {}
  bool cancelled() const override { return answer_->cancelled(); }
  uint64_t client() const override { return client_; }
  void Done(absl::StatusOr<Result> result) override { answer_->Set(std::move(result)); }
  void Admitted() override { answer_->SetAdmitted(); }
  void ReleasePayload() override { answer_->SetReleased(); }

 private:
  const AnswerRef answer_;
  const uint64_t client_;
};

// `text` cut into pieces of `piece` bytes; 0: one piece.
inline PieceList Pieces(std::string_view text, size_t piece) {
  PieceList segments;
  if (piece == 0) piece = text.size();
  while (!text.empty()) {
    const std::string_view head = text.substr(0, piece);
    segments.push_back({reinterpret_cast<const std::byte*>(head.data()), head.size()});
    text.remove_prefix(head.size());
  }
  return segments;
}

// Rotates one dense tensor [tokens, 1, lanes] of so many bytes, tokens = bytes / lanes, at
// positions 0...
inline PreparedRope BytesRequest(int64_t bytes, int64_t lanes = 4) {
  PreparedRope prepared;
  prepared.tokens = bytes / lanes;
  prepared.positions.tokens = prepared.tokens;
  prepared.positions.grid[0] = {{0, 0}, {1, 0}, prepared.tokens};
  PreparedRope::Tensor tensor;
  tensor.dtype = tensor.output_dtype = Dtype::kFloat16;
  tensor.shape = {prepared.tokens, 1, lanes / 2};
  tensor.heads = 1;
  tensor.x_strides = tensor.y_strides = {bytes, lanes, lanes};
  tensor.input_bytes = tensor.output_bytes = bytes;
  prepared.tensors.push_back(tensor);
  return prepared;
}

// An item of the request whose inputs are these, in the order of its slots.
inline Item ItemOf(Prepared prepared, std::initializer_list<PieceList> inputs = {}) {
  Item item(std::move(prepared));
  size_t i = 0;
  for (const PieceList& bytes : inputs) item.inputs.at(i++).bytes = bytes;
  return item;
}

// BytesRequest of the bytes `x`.
inline Item BytesItem(std::string_view x, size_t piece = 0) {
  return ItemOf(BytesRequest(static_cast<int64_t>(x.size())), {Pieces(x, piece)});
}

// A call of one such item; `x` must outlive it.
inline std::unique_ptr<TestCall> BytesCall(AnswerRef answer, std::string_view x, size_t piece = 0,
                                           uint64_t client = 0) {
  auto call = std::make_unique<TestCall>(std::move(answer), client);
  call->items.push_back(BytesItem(x, piece));
  call->cost_bytes = static_cast<int64_t>(2 * x.size());
  return call;
}

// Output `output` of item `item`.
inline std::string OutputOf(const Result& result, size_t item = 0, size_t output = 0) {
  const OutputRange range = result.items[item].outputs[output];
  std::string bytes(static_cast<size_t>(range.bytes), '\0');
  std::memcpy(bytes.data(), result.buffer->data() + range.offset, bytes.size());
  return bytes;
}

inline std::string Inverted(std::string_view text) {
  std::string inverted(text);
  for (char& c : inverted) c = static_cast<char>(~c);
  return inverted;
}

}  // namespace phasor::engine

#endif  // PHASOR_TESTS_SUPPORT_TEST_CALL_H_
