// SPDX-License-Identifier: Apache-2.0
// phasor::Client, the C++ client of Phasor. It computes position encodings and rotary embeddings on
// a server, or in this process with the target "inproc:".
//
//   auto client = phasor::Client::Connect("dns:///phasor:50051");  // or "unix:/path", "inproc:"
//   auto rows = client->Encode({.preset = "timestep-sin-cos", .dim = 128}, {10, 12, 16, 100});
//   auto info = client->ApplyRoPE({.preset = "rope-half-split", .head_dim = 128}, positions,
//                                 {q.view(), k.view()});  // in place
#ifndef PHASOR_CLIENT_CLIENT_H_
#define PHASOR_CLIENT_CLIENT_H_

#include <future>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/connection.h"
#include "client/device_memory.h"
#include "client/options.h"
#include "client/position_list.h"
#include "client/stream.h"
#include "client/tensor.h"

namespace phasor {

// A client of one server, or of the kernels in this process.
//
// Performance: make one client and keep it, because a new one may open new connections. Calls read
// and write the caller's tensors in place, and make no copy of the request on this side. Dense
// tensors travel fastest.
//
// Threads: any thread may call any function at any time. A Client is a cheap value; copies share
// the connection.
//
// Processes: after fork(), calls to a server fail in the child with FAILED_PRECONDITION if a client
// of a server was made before. The child may destroy its copies.
//
// Deadlines: every call has one, from CallOptions or else from ClientOptions::timeout. A call
// returns only when nothing reads its memory any more. If the server stops reading in the middle of
// a large request, that can take up to 10 s past the deadline over TCP. On a Unix socket it takes
// until the server reads again or exits.
class Client {
 public:
  // Opens a client of `target`: "dns:///host:port", "host:port", "ipv4:a.b.c.d:port",
  // "ipv6:[a]:port", "unix:/path" or "inproc:". The ipv4 and ipv6 forms accept several addresses
  // separated by commas. "inproc:" computes in this process, on the caller's thread.
  // Does not wait for the server: if it cannot be reached, the first call fails.
  // INVALID_ARGUMENT: unknown kind of target, an address that cannot be read, or an option out of
  // range. UNIMPLEMENTED: this library was built without gRPC. FAILED_PRECONDITION: this process is
  // the child of one that made a client of a server before fork(). For "inproc:", also NOT_FOUND
  // and FAILED_PRECONDITION: the backend is unknown or cannot run here.
  static absl::StatusOr<Client> Connect(std::string_view target, const ClientOptions& options = {});

  explicit Client(std::shared_ptr<Connection> connection, const ClientOptions& options = {});

  // Encode: rows [tokens, dim] -------------------------------------------------------------------

  template <ComputeElement T = float>
  absl::StatusOr<Array<T>> Encode(const Spec& spec, PositionList positions,
                                  const CallOptions& options = {}) const {
    return ToArray<T>(Encode(SimpleCall<T>(spec, std::move(positions)), options));
  }
  // Writes to the caller's memory. INVALID_ARGUMENT: `output` is not of shape [tokens, dim].
  absl::StatusOr<RunInfo> Encode(const Spec& spec, PositionList positions, MutableTensorView output,
                                 const CallOptions& options = {}) const;
  // Writes to a flat span of tokens * dim elements.
  template <ComputeElement T>
  absl::StatusOr<RunInfo> Encode(const Spec& spec, PositionList positions, absl::Span<T> output,
                                 const CallOptions& options = {}) const {
    const auto size = static_cast<int64_t>(output.size());
    return Encode(spec, std::move(positions), MutableView(output, {size}), options);
  }
  absl::StatusOr<EncodeResult> Encode(EncodeCall call, const CallOptions& options = {}) const;
  // Each item has its own result or error. The outer status is an error only if the whole call
  // failed.
  absl::StatusOr<std::vector<absl::StatusOr<EncodeResult>>> BatchEncode(
      std::vector<EncodeCall> calls, const CallOptions& options = {}) const;

  // `done` runs exactly once, on a thread of the connection. It must be short, must not wait for
  // another call, and must not throw: that would end the process. "inproc:" computes and runs
  // `done` before EncodeAsync returns.
  void EncodeAsync(EncodeCall call, Done<EncodeResult> done, const CallOptions& options = {}) const;
  template <ComputeElement T = float>
  void EncodeAsync(const Spec& spec, PositionList positions,
                   std::type_identity_t<Done<Array<T>>> done,
                   const CallOptions& options = {}) const {
    EncodeAsync(
        SimpleCall<T>(spec, std::move(positions)),
        [done = std::move(done)](absl::StatusOr<EncodeResult> result) mutable {
          done(ToArray<T>(std::move(result)));
        },
        options);
  }
  template <ComputeElement T = float>
  std::future<absl::StatusOr<Array<T>>> EncodeAsync(const Spec& spec, PositionList positions,
                                                    const CallOptions& options = {}) const {
    auto [future, done] = MakeFuture<Array<T>>();
    EncodeAsync<T>(spec, std::move(positions), std::move(done), options);
    return std::move(future);
  }

  // ApplyRoPE ------------------------------------------------------------------------------------

  // Rotates `tensors`, of shape [(batch,) tokens, heads, head_dim], by their positions.
  absl::StatusOr<RunInfo> ApplyRoPE(const Spec& spec, PositionList positions,
                                    absl::Span<const RopeTensor> tensors,
                                    const CallOptions& options = {}) const;
  absl::StatusOr<RunInfo> ApplyRoPE(RopeCall call, const CallOptions& options = {}) const;
  absl::StatusOr<std::vector<absl::StatusOr<RunInfo>>> BatchApplyRoPE(
      std::vector<RopeCall> calls, const CallOptions& options = {}) const;
  void ApplyRoPEAsync(RopeCall call, Done<RunInfo> done, const CallOptions& options = {}) const;
  std::future<absl::StatusOr<RunInfo>> ApplyRoPEAsync(RopeCall call,
                                                      const CallOptions& options = {}) const;

  // Rotates tensors of any size, also larger than one message. The call is sent, computed and
  // received in runs of tokens at the same time, so neither side holds all of it. Works in place or
  // not. Give it a timeout of its own. If it fails, a part of the outputs may be written. It is not
  // retried.
  absl::StatusOr<RunInfo> ApplyRoPEInChunks(RopeCall call, const ChunkOptions& chunks = {},
                                            const CallOptions& options = {}) const;

  // Allocates memory that the server maps, so that Encode and ApplyRoPE neither copy nor send the
  // tensors in it. It is shared only with a server on this host that was started with
  // --lease-socket. Otherwise it is ordinary memory: it works the same, but its bytes are sent.
  // Tensors of a call may lie anywhere in the memory; a call is in place if its tensors are. The
  // memory must outlive the calls. RESOURCE_EXHAUSTED: the memory cannot be allocated.
  //
  // A call with outputs in shared memory is not retried once the server may have begun it. After an
  // error, the server may have written a part of the outputs, and may still be writing. ABORTED:
  // tensors that were to be rotated in place hold neither their input nor their result.
  absl::StatusOr<SharedMemory> AllocateShared(int64_t bytes, const CallOptions& options = {}) const;

  // Registers memory of the server's GPU, so that tensors in it stay on the GPU. Encode and
  // ApplyRoPE accept views of it (DeviceMemory::View), also in batches and streams, for paged
  // caches, and beside tensors in host memory. Outputs must have all dimensions of the result, and
  // be dense or have the strides of an input on the GPU. Positions, slot mappings, biases and
  // tables must be in host memory, and so must all tensors of ApplyRoPEInChunks.
  // The caller's own GPU work on the memory must have finished before a call starts, and may start
  // again only after the call. What AllocateShared says about errors and retries of shared outputs
  // holds here too.
  //
  // The server must run on this host, on a GPU, with --shared-memory. It forgets the memory when it
  // ends, when no call has used the memory for --shared-memory-lease, and, over TCP without a token
  // or certificate, when the connection breaks. Calls then fail with NOT_FOUND. After an ABORTED
  // call, or after the GPU was lost, calls fail with FAILED_PRECONDITION. Register the memory again
  // in all of these cases.
  //
  // INVALID_ARGUMENT: the handle, UUID or range is wrong. FAILED_PRECONDITION: the server is not as
  // described above. RESOURCE_EXHAUSTED: the owner has as many regions as it may. UNIMPLEMENTED:
  // "inproc:".
  absl::StatusOr<DeviceMemory> RegisterDeviceMemory(CudaIpcAllocation allocation,
                                                    const CallOptions& options = {}) const;

  // Streams of many calls; each is answered when it is done. The deadline of `options` is the
  // deadline of the whole stream.
  std::unique_ptr<EncodeStream> StreamEncode(const CallOptions& options = {}) const;
  std::unique_ptr<RopeStream> StreamApplyRoPE(const CallOptions& options = {}) const;

  // Cached keys ----------------------------------------------------------------------------------

  // Moves cached keys to other positions where they lie, in all layers of a model at once, or
  // compares them with what a move would give. After an error, pools in ordinary memory are as they
  // were; what AllocateShared says holds for pools in shared memory. "inproc:" changes all pools
  // where they lie.
  //
  // A call whose deadline passes, or that is cancelled, ends within a few hundred KiB of keys.
  // ABORTED: a MoveMode::kMove call ended in the middle; its keys may hold their old rotation,
  // their new one or neither. After CANCELLED or DEADLINE_EXCEEDED from a server, the same holds
  // for pools in shared memory. KeyGroup::slot_positions make such a call repeatable.
  absl::StatusOr<MoveResult> MoveKeys(MoveCall call, const CallOptions& options = {}) const;
  // A pool that a call of a batch writes must overlap no pool of another call. Each call has its
  // own result or error. Calls of a stream run at the same time: a call must not use memory that an
  // unanswered one writes.
  absl::StatusOr<std::vector<absl::StatusOr<MoveResult>>> BatchMoveKeys(
      std::vector<MoveCall> calls, const CallOptions& options = {}) const;
  std::unique_ptr<MoveStream> StreamMoveKeys(const CallOptions& options = {}) const;

  // Attention biases and learned tables ----------------------------------------------------------

  absl::StatusOr<EncodeResult> AttentionBias(BiasCall call, const CallOptions& options = {}) const;

  // Lists all tables of the server in the order of their names.
  absl::StatusOr<std::vector<TableInfo>> ListTables(const CallOptions& options = {}) const;
  // Where the server keeps its tables.
  absl::StatusOr<TableStorage> GetTableStorage(const CallOptions& options = {}) const;
  // NOT_FOUND: no such table.
  absl::StatusOr<TableInfo> GetTable(std::string_view name, const CallOptions& options = {}) const;
  // Uploads `values`, dense [positions, width] or [buckets, heads], and replaces an uploaded table
  // of the same name. The table is on the server's disk when this returns. Not retried.
  absl::StatusOr<TableInfo> CreateTable(std::string_view name, const TensorView& values,
                                        const CallOptions& options = {}) const;
  absl::Status DeleteTable(std::string_view name, const CallOptions& options = {}) const;

  // About specs and the server -------------------------------------------------------------------

  absl::StatusOr<SpecDetails> ResolveSpec(const Spec& spec, const CallOptions& options = {}) const;
  // Also compares the upstream library's arithmetic (PARITY) with exact arithmetic.
  absl::StatusOr<SpecDetails> ResolveSpec(const Spec& spec, const parity::Comparison& comparison,
                                          const CallOptions& options = {}) const;
  // The specs of all layers of the model whose config_json `spec` has, and of its other parts
  // (docs/models.md). Other fields of the spec override those of all layers.
  absl::StatusOr<ModelDetails> ResolveModel(const Spec& spec,
                                            const CallOptions& options = {}) const;
  absl::StatusOr<std::vector<Preset>> ListPresets(const CallOptions& options = {}) const;
  absl::StatusOr<ServerInfo> GetServerInfo(const CallOptions& options = {}) const;
  // NOT_FOUND: unknown service. "inproc:" always answers kServing.
  absl::StatusOr<Health> CheckHealth(std::string_view service = "",
                                     const CallOptions& options = {}) const;

 private:
  template <typename T>
  static EncodeCall SimpleCall(const Spec& spec, PositionList positions) {
    return {.spec = spec, .positions = std::move(positions), .output_dtype = DtypeOf<T>::value};
  }
  template <typename T>
  static absl::StatusOr<Array<T>> ToArray(absl::StatusOr<EncodeResult> result) {
    if (!result.ok()) return std::move(result).status();
    return Array<T>(std::move(result->output.shape), std::move(result->bytes),
                    std::move(result->info));
  }
  template <typename T>
  static std::pair<std::future<absl::StatusOr<T>>, Done<T>> MakeFuture() {
    std::promise<absl::StatusOr<T>> promise;
    auto future = promise.get_future();
    return {std::move(future), [promise = std::move(promise)](absl::StatusOr<T> result) mutable {
              promise.set_value(std::move(result));
            }};
  }
  CallContext Context(const CallOptions& options, bool caller_waits) const;

  std::shared_ptr<Connection> connection_;
  absl::Duration timeout_;
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_CLIENT_H_
