// SPDX-License-Identifier: Apache-2.0
// NativeClient: one connection and its calls, for client/python/phasor/_client.py.
#ifndef PHASOR_CLIENT_PYTHON_NATIVE_CLIENT_H_
#define PHASOR_CLIENT_PYTHON_NATIVE_CLIENT_H_

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>

#include "client/connection.h"
#include "client/options.h"
#include "client/python/native/borrowed.h"
#include "client/python/native/completions.h"
#include "client/python/native/device_memory.h"
#include "client/python/native/waiting.h"

namespace phasor::python {

// A rotation whose arguments were read.
struct PreparedRope {
  RopeCall call;
  Borrowed borrowed;
};

// A client of one target. All functions need the interpreter lock and give it up while they wait.
// `timeout` is in seconds; None is the client's. Errors are raised as exceptions of phasor.
// Threads: any.
class NativeClient {
 public:
  using Timeout = std::optional<double>;

  // `devices` is a Devices of _devices.py. Raises InvalidArgument, NotFound and FailedPrecondition
  // as Client::Connect, and FailedPrecondition in a child of a process that had connected to a
  // server before fork().
  NativeClient(const std::string& target, nb::dict options, nb::object devices);
  ~NativeClient();
  NativeClient(const NativeClient&) = delete;
  NativeClient& operator=(const NativeClient&) = delete;

  // The tuples are those of calls.h.
  void Rope(nb::tuple call, Timeout timeout);
  nb::object Encode(nb::tuple call, Timeout timeout, nb::handle like);
  nb::object Bias(nb::tuple call, Timeout timeout, nb::handle like);
  nb::dict MoveKeys(nb::tuple call, Timeout timeout);  // the tuple of moves.h
  // The same without waiting: `completions` gets `token` and the result or exception. The result
  // cancels the call.
  CancelToken RopeAsync(nb::tuple call, Timeout timeout, Completions& completions,
                        nb::object token);
  CancelToken EncodeAsync(nb::tuple call, Timeout timeout, nb::object like,
                          Completions& completions, nb::object token);
  // The rotation, if its tensors are in host memory and have at most `max_bytes` in all; else
  // nullptr.
  std::unique_ptr<PreparedRope> PrepareRope(nb::tuple call, int64_t max_bytes);
  // Sends rotations in one message, and takes them from the list's elements. Each has its own
  // result, also its own paths in errors: `completions` gets `token` and a list of None and
  // exceptions.
  CancelToken StartRopes(nb::list ropes, Timeout timeout, Completions& completions,
                         nb::object token);
  // Lists of results and exceptions, in the order of the calls.
  nb::list RopeBatch(nb::list calls, Timeout timeout);
  nb::list EncodeBatch(nb::list calls, nb::list likes, Timeout timeout);
  // `progress` is None or a function(done, all), called on a thread of this module.
  void RopeInChunks(nb::tuple call, int64_t chunk_bytes, nb::object progress, Timeout timeout);

  nb::object Resolve(const Spec& spec, Timeout timeout);
  nb::list ResolveModel(const Spec& spec, Timeout timeout);
  nb::list Presets(Timeout timeout);
  nb::dict Info(Timeout timeout);
  int CheckHealth(const std::string& service, Timeout timeout);
  nb::list ListTables(Timeout timeout);
  nb::dict GetTable(const std::string& name, Timeout timeout);
  nb::dict CreateTable(const std::string& name, nb::object values, Timeout timeout);
  void DeleteTable(const std::string& name, Timeout timeout);
  // (bytes as a numpy array, whether a server maps them)
  nb::tuple AllocateShared(int64_t bytes, Timeout timeout);

  // `handle` has the 64 bytes of CUDA's handle, and `bytes` all of the allocation.
  NativeDeviceMemory RegisterDeviceMemory(nb::bytes handle, int64_t bytes,
                                          const std::string& device_uuid, Timeout timeout);

  // For streams.
  Borrowed Borrow();
  std::shared_ptr<Connection> connection() const;
  CallContext Context(Timeout timeout) const;
  bool in_process() const { return in_process_; }

 private:
  template <typename T, typename Method, typename... Arguments>
  absl::StatusOr<T> Make(Timeout timeout, Borrowed borrowed, Method method, Arguments... arguments);

  const bool in_process_;
  const int generation_;
  absl::Duration timeout_;
  int threads_ = 1;
  nb::object devices_;
  std::shared_ptr<Connection> connection_;
};

}  // namespace phasor::python

#endif  // PHASOR_CLIENT_PYTHON_NATIVE_CLIENT_H_
