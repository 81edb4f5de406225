// SPDX-License-Identifier: Apache-2.0
// Streams of calls, for client/python/phasor/_stream.py.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_STREAMS_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_STREAMS_H_

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <mutex>

#include "client/python/native/client.h"

namespace phasor::python {

// A stream of rotations or encodings; Ctrl-C ends every wait. All functions need the interpreter
// lock. Threads: one may write while another reads.
class NativeStream {
 public:
  enum class Of { kRope, kEncode };
  NativeStream(NativeClient& client, Of of, NativeClient::Timeout timeout);

  ~NativeStream();

  // As ItemStream::WaitToWrite.
  bool WaitToWrite();
  // `call` is a tuple of calls.h, `like` as in NativeClient::Encode.
  void Write(int64_t id, nb::tuple call, nb::object like);
  // (id, result or exception), or None at the end of the stream.
  nb::object Read();
  void WritesDone();
  // Raises the error of the stream, if it has one.
  void Finish();
  void Cancel() { cancel_.Cancel(); }

 private:
  struct Held {
    nb::tuple call;
    nb::object like;
    PositionList positions;
    std::shared_ptr<Borrowed> borrowed;
  };
  struct State {
    ~State();
    std::unique_ptr<RopeStream> rope;
    std::unique_ptr<EncodeStream> encode;
    // What calls without an answer borrow.
    std::mutex mutex;
    std::map<int64_t, std::shared_ptr<Borrowed>> borrowed;
  };
  Held Take(int64_t id);
  template <typename Stream>
  auto ReadFrom(Stream State::*stream);

  const nb::object client_;
  const bool in_process_;
  bool finished_ = false;  // gRPC has let go of the stream
  CancelToken cancel_;
  std::shared_ptr<State> state_;
  std::map<int64_t, Held> calls_;  // without an answer; with the interpreter lock
};

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_STREAMS_H_
