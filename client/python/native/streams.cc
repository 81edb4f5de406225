// SPDX-License-Identifier: Apache-2.0
// Writes calls to a stream and reads their answers.
#include "client/python/native/streams.h"

#include <optional>
#include <thread>
#include <utility>

#include "client/python/native/arrays.h"
#include "client/python/native/calls.h"

namespace phasor::python {
namespace {

// Makes a call of a stream without the interpreter lock. Raises what Ctrl-C or another signal
// raised meanwhile; the stream is then cancelled.
template <typename Function>
auto RunUnlocked(Function function) {
  auto result = [&] {
    const WithoutLock without;
    return function();
  }();
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return result;
}

}  // namespace

NativeStream::NativeStream(NativeClient& client, Of of, NativeClient::Timeout timeout)
    : client_(nb::find(client)),
      in_process_(client.in_process()),
      state_(std::make_shared<State>()) {
  CallContext context = client.Context(timeout);
  context.cancel = cancel_;
  context.interrupted = &Interrupted;
  const std::shared_ptr<Connection> connection = client.connection();
  const WithoutLock without;
  if (of == Of::kRope) state_->rope = connection->StreamApplyRoPE(std::move(context));
  if (of == Of::kEncode) state_->encode = connection->StreamEncode(std::move(context));
}

NativeStream::State::~State() {
  // Destroying a stream waits until nothing uses the memory of its calls.
  if (Py_IsInitialized() && PyGILState_Check()) {
    const WithoutLock without;
    rope.reset();
    encode.reset();
  } else {
    rope.reset();
    encode.reset();
  }
}

// Ctrl-C must not wait for a server that has stopped, as the end of an unfinished stream does.
NativeStream::~NativeStream() {
  if (finished_ || in_process_ || !OnMainThread()) return;
  std::thread([state = std::move(state_)]() mutable { state.reset(); }).detach();
}

bool NativeStream::WaitToWrite() {
  return RunUnlocked([&] {
    return state_->rope != nullptr ? state_->rope->WaitToWrite() : state_->encode->WaitToWrite();
  });
}

void NativeStream::Write(int64_t id, nb::tuple call, nb::object like) {
  auto borrowed = std::make_shared<Borrowed>(nb::cast<NativeClient&>(client_).Borrow());
  borrowed->Keep(call);
  RopeCall rope;
  EncodeCall encode;
  if (state_->rope != nullptr) {
    rope = ToRopeCall(call, *borrowed);
  } else {
    encode = ToEncodeCall(call, *borrowed);
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->borrowed[id] = borrowed;
  }
  calls_[id] = {call, like, encode.positions, nullptr};
  const absl::Status written = RunUnlocked([&] {
    return state_->rope != nullptr ? state_->rope->Write(id, std::move(rope))
                                   : state_->encode->Write(id, std::move(encode));
  });
  if (written.ok()) return;
  Take(id);
  Raise(written);
}

NativeStream::Held NativeStream::Take(int64_t id) {
  Held held = std::move(calls_.extract(id).mapped());
  std::lock_guard lock(state_->mutex);
  held.borrowed = std::move(state_->borrowed[id]);
  state_->borrowed.erase(id);
  return held;
}

// A stream of this process computes the answer here: on the main thread, in a thread of its own, so
// that Ctrl-C need not wait.
template <typename Stream>
auto NativeStream::ReadFrom(Stream State::*stream) {
  using Answer = decltype(((*state_).*stream)->Read());
  const auto read = [state = state_, stream] { return ((*state).*stream)->Read(); };
  if (!in_process_) return RunUnlocked(read);
  return ValueOrRaise(RunBlocking<Answer>(cancel_, read));
}

nb::object NativeStream::Read() {
  if (state_->rope != nullptr) {
    const auto answer = ReadFrom(&State::rope);
    if (!answer.has_value()) return nb::none();
    const Held held = Take(answer->id);
    if (!answer->result.ok()) {
      return nb::make_tuple(answer->id, ToException(answer->result.status()));
    }
    return nb::make_tuple(answer->id, ObjectOrException([&] {
                            MarkWritten(held.call[kRopeOutputs]);
                            return nb::none();
                          }));
  }
  auto answer = ReadFrom(&State::encode);
  if (!answer.has_value()) return nb::none();
  const Held held = Take(answer->id);
  if (!answer->result.ok()) {
    return nb::make_tuple(answer->id, ToException(answer->result.status()));
  }
  return nb::make_tuple(answer->id, ObjectOrException([&]() -> nb::object {
                          const nb::object output = held.call[kEncodeOutput];
                          if (!output.is_none()) {
                            MarkWritten(nb::make_tuple(output));
                            return output;
                          }
                          const int64_t batch =
                              BatchOf(held.positions, answer->result->output.shape[0]);
                          return ToArray(*std::move(answer->result), held.like, batch);
                        }));
}

void NativeStream::WritesDone() {
  RunUnlocked([&] {
    state_->rope != nullptr ? state_->rope->WritesDone() : state_->encode->WritesDone();
    return true;
  });
}

void NativeStream::Finish() {
  const absl::Status ended = RunUnlocked(
      [&] { return state_->rope != nullptr ? state_->rope->Finish() : state_->encode->Finish(); });
  finished_ = !absl::IsDeadlineExceeded(ended) && !absl::IsCancelled(ended);
  if (!ended.ok()) Raise(ended);
}

}  // namespace phasor::python
