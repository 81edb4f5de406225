// SPDX-License-Identifier: Apache-2.0
// Makes calls over a connection and turns their answers into Python objects.
#include "client/python/native/client.h"

#include <atomic>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/grpc/grpc_connection.h"
#include "client/inproc/inproc_connection.h"
#include "client/python/native/arrays.h"
#include "client/python/native/calls.h"
#include "client/python/native/moves.h"
#include "client/python/native/values.h"
#include "kernels/base/steady_time.h"
#include "kernels/base/text.h"

namespace phasor::python {
namespace {

// The first generation that connected to a server, or -1. gRPC's threads do not exist in a child.
std::atomic<int> grpc_generation = -1;

[[noreturn]] void RaiseAfterFork(std::string_view what) {
  Raise(absl::FailedPreconditionError(
      StrCat("client: ", what,
             " before fork(); connect only in the child, or start it with the spawn method")));
}

void CheckGrpcAfterFork() {
  int none = -1;
  grpc_generation.compare_exchange_strong(none, ForkGeneration());
  if (grpc_generation != ForkGeneration()) RaiseAfterFork("this process connected to a server");
}

std::shared_ptr<Connection> Connect(const std::string& target, const ClientOptions& options) {
  if (absl::Status status = options.Validate(); !status.ok()) Raise(status);
  if (target == "inproc:") {
    return ValueOrRaise(client_internal::MakeInprocConnection(options));
  }
  CheckGrpcAfterFork();
  return ValueOrRaise(client_internal::MakeGrpcConnection(target, options));
}

nb::object ToObject(absl::StatusOr<RunInfo> info) {
  return info.ok() ? nb::none() : ToException(info.status());
}

// An encoding's result: its exception, the output that the caller gave, or a new array.
nb::object ToObject(absl::StatusOr<EncodeResult> result, nb::tuple call, nb::handle like,
                    const PositionList& positions) {
  if (!result.ok()) return ToException(result.status());
  const nb::object output = call[kEncodeOutput];
  if (!output.is_none()) {
    MarkWritten(nb::make_tuple(output));
    return output;
  }
  const int64_t batch = BatchOf(positions, result->output.shape[0]);
  return ToArray(*std::move(result), like, batch);
}

// The tensors that a call of calls.h writes.
nb::object OutputsOf(nb::tuple call) {
  const nb::object pages = call[kRopePages];
  if (pages.is_none()) return call[kRopeOutputs];
  return nb::make_tuple(pages[1], pages[2]);
}

// The error of a batch's item as that of a single call: "items[3].positions" is "item.positions".
absl::Status OfSingle(const absl::Status& status, size_t i) {
  const std::string path = StrCat("items[", i, "]");
  const std::string message(status.message());
  if (!message.starts_with(path)) return status;
  return absl::Status(status.code(), "item" + message.substr(path.size()));
}

// What Python said when a progress function raised.
struct ProgressError {
  PyObject* exception = nullptr;
};

ChunkOptions ToChunks(int64_t chunk_bytes, PyObject* progress, CancelToken cancel,
                      std::shared_ptr<ProgressError> error) {
  ChunkOptions options{.chunk_bytes = chunk_bytes};
  if (progress == Py_None) return options;
  options.progress = [progress, cancel, error](int64_t done, int64_t all) mutable {
    if (cancel.cancelled()) return;  // nobody may wait any more, and the interpreter may have ended
    const WithLock lock;
    try {
      Call(progress, done, all);
    } catch (nb::python_error& raised) {
      error->exception = raised.value().inc_ref().ptr();
      cancel.Cancel();
    }
  };
  return options;
}

}  // namespace

NativeClient::NativeClient(const std::string& target, nb::dict options, nb::object devices)
    : in_process_(target == "inproc:"),
      generation_(ForkGeneration()),
      devices_(std::move(devices)) {
  const ClientOptions values = ToClientOptions(options);
  timeout_ = values.timeout;
  threads_ = values.inproc_threads;
  connection_ = Connect(target, values);
}

NativeClient::~NativeClient() {
  if (generation_ != ForkGeneration() && (!in_process_ || threads_ > 1)) {
    new std::shared_ptr<Connection>(std::move(connection_));  // its threads are the parent's
    return;
  }
  const WithoutLock without;
  connection_.reset();
}

Borrowed NativeClient::Borrow() {
  return in_process_ ? Borrowed() : Borrowed(nb::find(*this), devices_);
}

std::shared_ptr<Connection> NativeClient::connection() const {
  if (generation_ != ForkGeneration()) {
    if (!in_process_) RaiseAfterFork("this client was connected");
    if (threads_ > 1) RaiseAfterFork("this client's threads were started");
  }
  return connection_;
}

CallContext NativeClient::Context(Timeout timeout) const {
  Borrowed::DropWaiting();
  const absl::Duration time = timeout.has_value() ? ToDuration(*timeout) : timeout_;
  return {.deadline = SteadyNow() + time};
}

template <typename T, typename Method, typename... Arguments>
absl::StatusOr<T> NativeClient::Make(Timeout timeout, Borrowed borrowed, Method method,
                                     Arguments... arguments) {
  std::shared_ptr<Connection> use = connection();
  return Await<T>(Context(timeout), !in_process_, std::move(borrowed),
                  [&, use = std::move(use)](CallContext context, Done<T> done) {
                    ((*use).*method)(std::move(arguments)..., std::move(context), std::move(done));
                  });
}

void NativeClient::Rope(nb::tuple call, Timeout timeout) {
  Borrowed borrowed = Borrow();
  RopeCall rope = ToRopeCall(call, borrowed);
  const auto info =
      Make<RunInfo>(timeout, std::move(borrowed), &Connection::ApplyRoPE, std::move(rope));
  if (!info.ok()) Raise(info.status());
  MarkWritten(OutputsOf(call));
}

nb::object NativeClient::Encode(nb::tuple call, Timeout timeout, nb::handle like) {
  Borrowed borrowed = Borrow();
  EncodeCall encode = ToEncodeCall(call, borrowed);
  const PositionList positions = encode.positions;
  auto result =
      Make<EncodeResult>(timeout, std::move(borrowed), &Connection::Encode, std::move(encode));
  if (!result.ok()) Raise(result.status());
  return ToObject(std::move(result), call, like, positions);
}

nb::object NativeClient::Bias(nb::tuple call, Timeout timeout, nb::handle like) {
  Borrowed borrowed;
  BiasCall bias = ToBiasCall(call, borrowed);
  auto result =
      Make<EncodeResult>(timeout, std::move(borrowed), &Connection::AttentionBias, std::move(bias));
  if (!result.ok()) Raise(result.status());
  const nb::object output = call[kBiasOutput];
  if (output.is_none()) return ToArray(*std::move(result), like);
  MarkWritten(nb::make_tuple(output));
  return output;
}

nb::dict NativeClient::MoveKeys(nb::tuple call, Timeout timeout) {
  Borrowed borrowed = Borrow();
  MoveCall move = ToMoveCall(call, borrowed);
  const bool writes = move.mode != MoveMode::kCompare;
  const auto result =
      Make<MoveResult>(timeout, std::move(borrowed), &Connection::MoveKeys, std::move(move));
  if (!result.ok()) Raise(result.status());
  if (writes) MarkWritten(call[kMovePools]);
  return ToDict(*result);
}

CancelToken NativeClient::RopeAsync(nb::tuple call, Timeout timeout, Completions& completions,
                                    nb::object token) {
  auto borrowed = std::make_unique<Borrowed>(Borrow());
  RopeCall rope = ToRopeCall(call, *borrowed);
  CallContext context = Context(timeout);
  CancelToken cancel;
  context.cancel = cancel;
  PyObject* const arguments = call.ptr();
  PyObject* const key = token.ptr();
  borrowed->Keep(call);
  borrowed->Keep(token);
  const std::shared_ptr<Connection> use = connection();
  const WithoutLock without;
  use->ApplyRoPE(std::move(rope), std::move(context),
                 [completions, key, arguments,
                  borrowed = std::move(borrowed)](absl::StatusOr<RunInfo> info) mutable {
                   completions.Add(
                       key,
                       [info = std::move(info), arguments] {
                         if (info.ok()) MarkWritten(OutputsOf(nb::borrow<nb::tuple>(arguments)));
                         return ToObject(info);
                       },
                       std::move(*borrowed));
                 });
  return cancel;
}

CancelToken NativeClient::EncodeAsync(nb::tuple call, Timeout timeout, nb::object like,
                                      Completions& completions, nb::object token) {
  auto borrowed = std::make_unique<Borrowed>(Borrow());
  EncodeCall encode = ToEncodeCall(call, *borrowed);
  CallContext context = Context(timeout);
  CancelToken cancel;
  context.cancel = cancel;
  const PositionList positions = encode.positions;
  PyObject* const arguments = call.ptr();
  PyObject* const key = token.ptr();
  PyObject* const kind = like.ptr();
  for (const nb::object& kept : {nb::object(call), token, like}) borrowed->Keep(kept);
  const std::shared_ptr<Connection> use = connection();
  const WithoutLock without;
  use->Encode(std::move(encode), std::move(context),
              [completions, key, kind, arguments, positions,
               borrowed = std::move(borrowed)](absl::StatusOr<EncodeResult> result) mutable {
                completions.Add(
                    key,
                    [result = std::move(result), kind, arguments, positions]() mutable {
                      return ToObject(std::move(result), nb::borrow<nb::tuple>(arguments), kind,
                                      positions);
                    },
                    std::move(*borrowed));
              });
  return cancel;
}

std::unique_ptr<PreparedRope> NativeClient::PrepareRope(nb::tuple call, int64_t max_bytes) {
  auto rope = std::make_unique<PreparedRope>(PreparedRope{{}, Borrow()});
  rope->call = ToRopeCall(call, rope->borrowed);
  for (const RopeTensor& tensor : rope->call.tensors) {
    if (tensor.input.device.memory != nullptr || tensor.input.bytes > max_bytes) return nullptr;
    max_bytes -= tensor.input.bytes;
  }
  return rope;
}

CancelToken NativeClient::StartRopes(nb::list ropes, Timeout timeout, Completions& completions,
                                     nb::object token) {
  auto borrowed = std::make_unique<Borrowed>();
  std::vector<RopeCall> calls;
  for (nb::handle each : ropes) {
    auto& rope = nb::cast<PreparedRope&>(each);
    calls.push_back(std::move(rope.call));
    borrowed->Take(std::move(rope.borrowed));
  }
  CallContext context = Context(timeout);
  CancelToken cancel;
  context.cancel = cancel;
  PyObject* const key = token.ptr();
  borrowed->Keep(std::move(token));
  using Results = std::vector<absl::StatusOr<RunInfo>>;
  auto answer = [completions, key, borrowed = std::move(borrowed)](Results results) mutable {
    auto make = [results = std::move(results)] {
      nb::list objects;
      for (const auto& result : results) objects.append(ToObject(result));
      return nb::object(std::move(objects));
    };
    completions.Add(key, std::move(make), std::move(*borrowed));
  };
  const std::shared_ptr<Connection> use = connection();
  const WithoutLock without;
  if (calls.size() == 1) {
    use->ApplyRoPE(std::move(calls[0]), std::move(context),
                   [answer = std::move(answer)](absl::StatusOr<RunInfo> result) mutable {
                     answer({std::move(result)});
                   });
    return cancel;
  }
  const size_t count = calls.size();
  use->BatchApplyRoPE(std::move(calls), std::move(context),
                      [count, answer = std::move(answer)](absl::StatusOr<Results> results) mutable {
                        if (!results.ok()) return answer(Results(count, results.status()));
                        for (size_t i = 0; i < count; ++i) {
                          if (absl::Status status = (*results)[i].status(); !status.ok()) {
                            (*results)[i] = OfSingle(status, i);
                          }
                        }
                        answer(*std::move(results));
                      });
  return cancel;
}

nb::list NativeClient::RopeBatch(nb::list calls, Timeout timeout) {
  Borrowed borrowed = Borrow();
  std::vector<RopeCall> ropes;
  for (nb::handle call : calls) {
    ropes.push_back(ToRopeCall(nb::cast<nb::tuple>(call), borrowed));
  }
  using Results = std::vector<absl::StatusOr<RunInfo>>;
  const auto results = ValueOrRaise(
      Make<Results>(timeout, std::move(borrowed), &Connection::BatchApplyRoPE, std::move(ropes)));
  nb::list objects;
  for (size_t i = 0; i < results.size(); ++i) {
    objects.append(ObjectOrException([&] {
      if (results[i].ok()) MarkWritten(OutputsOf(nb::cast<nb::tuple>(calls[i])));
      return ToObject(results[i]);
    }));
  }
  return objects;
}

nb::list NativeClient::EncodeBatch(nb::list calls, nb::list likes, Timeout timeout) {
  Borrowed borrowed = Borrow();
  std::vector<EncodeCall> encodes;
  std::vector<PositionList> positions;
  for (nb::handle call : calls) {
    encodes.push_back(ToEncodeCall(nb::cast<nb::tuple>(call), borrowed));
    positions.push_back(encodes.back().positions);
  }
  using Results = std::vector<absl::StatusOr<EncodeResult>>;
  auto results = ValueOrRaise(
      Make<Results>(timeout, std::move(borrowed), &Connection::BatchEncode, std::move(encodes)));
  nb::list objects;
  for (size_t i = 0; i < results.size(); ++i) {
    objects.append(ObjectOrException([&] {
      return ToObject(std::move(results[i]), nb::cast<nb::tuple>(calls[i]), likes[i], positions[i]);
    }));
  }
  return objects;
}

void NativeClient::RopeInChunks(nb::tuple call, int64_t chunk_bytes, nb::object progress,
                                Timeout timeout) {
  auto borrowed = std::make_shared<Borrowed>();
  RopeCall rope = ToRopeCall(call, *borrowed);
  borrowed->Keep(progress);
  CancelToken cancel;
  auto error = std::make_shared<ProgressError>();
  const ChunkOptions chunks = ToChunks(chunk_bytes, progress.ptr(), cancel, error);
  CallContext context = Context(timeout);
  context.cancel = cancel;
  // Client does the checks and cuts the batch.
  const absl::Duration left = context.deadline - SteadyNow();
  const Client client(connection());
  const auto info = RunBlocking<RunInfo>(cancel, [=, kept = borrowed] {
    return client.ApplyRoPEInChunks(rope, chunks, {.timeout = left, .cancel = cancel});
  });
  if (error->exception != nullptr) {
    const nb::object exception = nb::steal(error->exception);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
  }
  if (!info.ok()) Raise(info.status());
  MarkWritten(OutputsOf(call));
}

nb::object NativeClient::Resolve(const Spec& spec, Timeout timeout) {
  return ToDict(
      ValueOrRaise(Make<SpecDetails>(timeout, {}, &Connection::ResolveSpec, spec, std::nullopt)));
}

nb::list NativeClient::ResolveModel(const Spec& spec, Timeout timeout) {
  return ToList(ValueOrRaise(Make<ModelDetails>(timeout, {}, &Connection::ResolveModel, spec)));
}

nb::list NativeClient::Presets(Timeout timeout) {
  using List = std::vector<Preset>;
  nb::list presets;
  for (const Preset& preset : ValueOrRaise(Make<List>(timeout, {}, &Connection::ListPresets))) {
    presets.append(ToDict(preset));
  }
  return presets;
}

nb::dict NativeClient::Info(Timeout timeout) {
  return ToDict(ValueOrRaise(Make<ServerInfo>(timeout, {}, &Connection::GetServerInfo)));
}

int NativeClient::CheckHealth(const std::string& service, Timeout timeout) {
  return static_cast<int>(
      ValueOrRaise(Make<Health>(timeout, {}, &Connection::CheckHealth, service)));
}

nb::list NativeClient::ListTables(Timeout timeout) {
  nb::list tables;
  std::string page_token;
  do {
    const TablePage page =
        ValueOrRaise(Make<TablePage>(timeout, {}, &Connection::ListTables, page_token));
    for (const TableInfo& table : page.tables) tables.append(ToDict(table));
    page_token = page.next_page_token;
  } while (!page_token.empty());
  return tables;
}

nb::dict NativeClient::GetTable(const std::string& name, Timeout timeout) {
  return ToDict(ValueOrRaise(Make<TableInfo>(timeout, {}, &Connection::GetTable, name)));
}

nb::dict NativeClient::CreateTable(const std::string& name, nb::object values, Timeout timeout) {
  auto borrowed = std::make_shared<Borrowed>();
  const TensorView view = Import(values, "values", Access::kRead, *borrowed);
  const std::shared_ptr<Connection> use = connection();
  CancelToken cancel;
  CallContext context = Context(timeout);
  context.cancel = cancel;
  return ToDict(ValueOrRaise(RunBlocking<TableInfo>(cancel, [=, kept = borrowed] {
    return Block<TableInfo>(context, [&](CallContext waiting, Done<TableInfo> done) {
      use->CreateTable(name, view, std::move(waiting), std::move(done));
    });
  })));
}

void NativeClient::DeleteTable(const std::string& name, Timeout timeout) {
  ValueOrRaise(Await<bool>(Context(timeout), !in_process_, {},
                           [&name, use = connection()](CallContext context, Done<bool> done) {
                             use->DeleteTable(
                                 name, std::move(context),
                                 [done = std::move(done)](absl::Status status) mutable {
                                   if (!status.ok()) return done(std::move(status));
                                   done(true);
                                 });
                           }));
}

nb::tuple NativeClient::AllocateShared(int64_t bytes, Timeout timeout) {
  auto memory = std::make_unique<SharedMemory>(
      ValueOrRaise(Make<SharedMemory>(timeout, {}, &Connection::AllocateShared, bytes)));
  std::byte* const data = memory->data();
  const bool shared = memory->shared();
  nb::capsule owner(memory.release(),
                    [](void* p) noexcept { delete static_cast<SharedMemory*>(p); });
  return nb::make_tuple(BytesArray(data, bytes, std::move(owner)), shared);
}

NativeDeviceMemory NativeClient::RegisterDeviceMemory(nb::bytes handle, int64_t bytes,
                                                      const std::string& device_uuid,
                                                      Timeout timeout) {
  CudaIpcAllocation allocation{.handle = std::string(handle.c_str(), handle.size()),
                               .size_bytes = bytes,
                               .device_uuid = device_uuid};
  return NativeDeviceMemory(ValueOrRaise(
      Make<DeviceMemory>(timeout, {}, &Connection::RegisterDeviceMemory, std::move(allocation))));
}

}  // namespace phasor::python
