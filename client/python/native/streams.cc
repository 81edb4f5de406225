// SPDX-License-Identifier: Apache-2.0
// Writes calls to a stream and reads their answers.
#include "client/python/native/streams.h"

#include <optional>
#include <utility>

#include "client/python/native/arrays.h"
#include "client/python/native/calls.h"

namespace phasor::python {
namespace {

// Statuses travel through RunBlocking as values.
absl::StatusOr<bool> ToValue(const absl::Status& status) {
  if (!status.ok()) return status;
  return true;
}

}  // namespace

NativeStream::NativeStream(NativeClient& client, Of of, NativeClient::Timeout timeout)
    : client_(nb::find(client)), state_(std::make_shared<State>()) {
  CallContext context = client.Context(timeout);
  context.cancel = cancel_;
  const std::shared_ptr<Connection> connection = client.connection();
  nb::gil_scoped_release release;
  if (of == Of::kRope) state_->rope = connection->StreamApplyRoPE(std::move(context));
  if (of == Of::kEncode) state_->encode = connection->StreamEncode(std::move(context));
}

NativeStream::State::~State() {
  // Destroying a stream waits until nothing uses the memory of its calls.
  if (Py_IsInitialized() && PyGILState_Check()) {
    nb::gil_scoped_release release;
    rope.reset();
    encode.reset();
  } else {
    rope.reset();
    encode.reset();
  }
}

void NativeStream::Write(int64_t id, nb::tuple call, nb::object like) {
  auto borrowed = std::make_shared<Borrowed>(nb::cast<NativeClient&>(client_).Borrow());
  borrowed->Keep(call);
  std::function<absl::StatusOr<bool>()> write;
  PositionList positions;
  if (state_->rope != nullptr) {
    write = [state = state_, id, rope = ToRopeCall(call, *borrowed)] {
      return ToValue(state->rope->Write(id, rope));
    };
  } else {
    EncodeCall encode = ToEncodeCall(call, *borrowed);
    positions = encode.positions;
    write = [state = state_, id, encode = std::move(encode)] {
      return ToValue(state->encode->Write(id, encode));
    };
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->borrowed[id] = borrowed;
  }
  calls_[id] = {call, like, std::move(positions), nullptr};
  const auto written = RunBlocking<bool>(cancel_, std::move(write));
  if (written.ok()) return;
  Take(id);
  Raise(written.status());
}

NativeStream::Held NativeStream::Take(int64_t id) {
  Held held = std::move(calls_.extract(id).mapped());
  std::lock_guard lock(state_->mutex);
  held.borrowed = std::move(state_->borrowed[id]);
  state_->borrowed.erase(id);
  return held;
}

nb::object NativeStream::Read() {
  if (state_->rope != nullptr) {
    using Answer = std::optional<StreamAnswer<RunInfo>>;
    auto answer = ValueOrRaise(RunBlocking<Answer>(
        cancel_, [state = state_]() -> absl::StatusOr<Answer> { return state->rope->Read(); }));
    if (!answer.has_value()) return nb::none();
    const Held held = Take(answer->id);
    if (!answer->result.ok()) {
      return nb::make_tuple(answer->id, ToException(answer->result.status()));
    }
    MarkWritten(held.call[kRopeOutputs]);
    return nb::make_tuple(answer->id, nb::none());
  }
  using Answer = std::optional<StreamAnswer<EncodeResult>>;
  auto answer = ValueOrRaise(RunBlocking<Answer>(
      cancel_, [state = state_]() -> absl::StatusOr<Answer> { return state->encode->Read(); }));
  if (!answer.has_value()) return nb::none();
  const Held held = Take(answer->id);
  if (!answer->result.ok()) {
    return nb::make_tuple(answer->id, ToException(answer->result.status()));
  }
  const nb::object output = held.call[kEncodeOutput];
  if (!output.is_none()) {
    MarkWritten(nb::make_tuple(output));
    return nb::make_tuple(answer->id, output);
  }
  const int64_t batch = BatchOf(held.positions, answer->result->output.shape[0]);
  return nb::make_tuple(answer->id, ToArray(*std::move(answer->result), held.like, batch));
}

void NativeStream::WritesDone() {
  ValueOrRaise(RunBlocking<bool>(cancel_, [state = state_]() -> absl::StatusOr<bool> {
    state->rope != nullptr ? state->rope->WritesDone() : state->encode->WritesDone();
    return true;
  }));
}

void NativeStream::Finish() {
  ValueOrRaise(RunBlocking<bool>(cancel_, [state = state_] {
    return ToValue(state->rope != nullptr ? state->rope->Finish() : state->encode->Finish());
  }));
}

}  // namespace phasor::python
