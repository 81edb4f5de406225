// SPDX-License-Identifier: Apache-2.0
// The client of Phasor: position embeddings and rotary embeddings, from a server or computed here.
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

// Performance: make one and keep it; a new one may open new connections. Tensors of the caller are
// read and written in place, without a copy of the request on this side; dense ones travel fastest.
//
// Threads: a cheap value; copies share the connection and may be used from any thread at once.
//
// Deadlines: every call has one (CallOptions, else ClientOptions::timeout). A call returns only
// when nothing reads its memory any more. Should a peer stop reading in the middle of a large
// request, that is up to 10 s after the deadline over TCP; on a Unix socket, when the peer reads on
// or exits.
class Client {
 public:
  // Targets: "dns:///host:port", "host:port", "ipv4:a.b.c.d:port" and "ipv6:[a]:port" (of these
  // also several addresses, separated by commas), "unix:/path", "inproc:" (computes in this
  // process; calls run on the caller's thread). Does not wait for a server: a call finds out.
  // INVALID_ARGUMENT: no such kind of target, or an option out of range. UNIMPLEMENTED: built
  // without gRPC. "inproc:": NOT_FOUND or FAILED_PRECONDITION for the backend.
  static absl::StatusOr<Client> Connect(std::string_view target, const ClientOptions& options = {});

  explicit Client(std::shared_ptr<Connection> connection, const ClientOptions& options = {});

  // Encode: rows [tokens, dim] -------------------------------------------------------------------

  template <ComputeElement T = float>
  absl::StatusOr<Array<T>> Encode(const Spec& spec, PositionList positions,
                                  const CallOptions& options = {}) const {
    return ToArray<T>(Encode(SimpleCall<T>(spec, std::move(positions)), options));
  }
  // Into the caller's memory. INVALID_ARGUMENT if `output` is not of shape [tokens, dim].
  absl::StatusOr<RunInfo> Encode(const Spec& spec, PositionList positions, MutableTensorView output,
                                 const CallOptions& options = {}) const;
  // The same into a flat span of tokens * dim elements.
  template <ComputeElement T>
  absl::StatusOr<RunInfo> Encode(const Spec& spec, PositionList positions, absl::Span<T> output,
                                 const CallOptions& options = {}) const {
    const auto size = static_cast<int64_t>(output.size());
    return Encode(spec, std::move(positions), MutableView(output, {size}), options);
  }
  absl::StatusOr<EncodeResult> Encode(EncodeCall call, const CallOptions& options = {}) const;
  // INVALID_ARGUMENT and the like come per item; the outer status tells that the call failed.
  absl::StatusOr<std::vector<absl::StatusOr<EncodeResult>>> BatchEncode(
      std::vector<EncodeCall> calls, const CallOptions& options = {}) const;

  // `done` runs once, on a thread of the connection: it should be short and must not wait for
  // another call. "inproc:" computes and calls it before returning.
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

  // Rotates by +positions, tensors [(batch,) tokens, heads, head_dim].
  absl::StatusOr<RunInfo> ApplyRoPE(const Spec& spec, PositionList positions,
                                    absl::Span<const RopeTensor> tensors,
                                    const CallOptions& options = {}) const;
  absl::StatusOr<RunInfo> ApplyRoPE(RopeCall call, const CallOptions& options = {}) const;
  absl::StatusOr<std::vector<absl::StatusOr<RunInfo>>> BatchApplyRoPE(
      std::vector<RopeCall> calls, const CallOptions& options = {}) const;
  void ApplyRoPEAsync(RopeCall call, Done<RunInfo> done, const CallOptions& options = {}) const;
  std::future<absl::StatusOr<RunInfo>> ApplyRoPEAsync(RopeCall call,
                                                      const CallOptions& options = {}) const;

  // Of any size, also beyond one message: sent, computed and received in runs of tokens at the same
  // time, so that neither side holds all of it; in place or not. Give it a timeout of its own. When
  // it fails, the outputs may be written in part; nothing is tried again.
  absl::StatusOr<RunInfo> ApplyRoPEInChunks(RopeCall call, const ChunkOptions& chunks = {},
                                            const CallOptions& options = {}) const;

  // Memory that Encode and ApplyRoPE use where it lies: the server maps it, no byte is copied or
  // sent. Shared if the server runs on this host with --lease-socket, else ordinary memory, which
  // works the same and travels. Tensors of a call may lie anywhere in it; they are in place if they
  // were given in place. It must outlive the calls. RESOURCE_EXHAUSTED: no such memory.
  //
  // A call whose outputs are in shared memory is not tried again once its server may have begun it.
  // After an error they may be written in part, or still be; ABORTED: what was to change in place
  // holds neither input nor result.
  absl::StatusOr<SharedMemory> AllocateShared(int64_t bytes, const CallOptions& options = {}) const;

  // Tensors that lie on the server's GPU stay there: Encode and ApplyRoPE, also in batches and
  // streams, take DeviceMemory::View of what this registers, beside others, and paged caches.
  // Outputs have all dimensions of the result, and are dense or have the strides of an input on the
  // GPU. Positions, slots, biases, tables and ApplyRoPEInChunks stay on the host. The caller's own
  // work on the memory must be done before a call, and begins after it; what is said above of calls
  // whose outputs are shared holds.
  //
  // The server must be one of this host, started on a GPU with --shared-memory. It forgets the
  // memory when it ends, when no call named it for its --shared-memory-lease, and, over TCP without
  // a token or certificate, when the connection breaks. Calls are NOT_FOUND then, and
  // FAILED_PRECONDITION after an ABORTED one or when the GPU was lost: register it again.
  //
  // INVALID_ARGUMENT: handle, UUID or range; FAILED_PRECONDITION: no such server;
  // RESOURCE_EXHAUSTED: more regions than an owner may have; UNIMPLEMENTED: "inproc:".
  absl::StatusOr<DeviceMemory> RegisterDeviceMemory(CudaIpcAllocation allocation,
                                                    const CallOptions& options = {}) const;

  // Streams: many calls, each answered when it is done. The options' deadline is the stream's.
  std::unique_ptr<EncodeStream> StreamEncode(const CallOptions& options = {}) const;
  std::unique_ptr<RopeStream> StreamApplyRoPE(const CallOptions& options = {}) const;

  // Attention biases and learned tables ----------------------------------------------------------

  absl::StatusOr<EncodeResult> AttentionBias(BiasCall call, const CallOptions& options = {}) const;

  // All tables of the server, by name.
  absl::StatusOr<std::vector<TableInfo>> ListTables(const CallOptions& options = {}) const;
  // NOT_FOUND: no such table.
  absl::StatusOr<TableInfo> GetTable(std::string_view name, const CallOptions& options = {}) const;
  // Uploads `values`, dense [positions, width] or [buckets, heads], and replaces a table that was
  // uploaded under the name before. On the server's disk when this returns. Not tried again.
  absl::StatusOr<TableInfo> CreateTable(std::string_view name, const TensorView& values,
                                        const CallOptions& options = {}) const;
  absl::Status DeleteTable(std::string_view name, const CallOptions& options = {}) const;

  // About specs and the server -------------------------------------------------------------------

  absl::StatusOr<SpecDetails> ResolveSpec(const Spec& spec, const CallOptions& options = {}) const;
  // The same, and how far the upstream's arithmetic (PARITY) is from the exact one.
  absl::StatusOr<SpecDetails> ResolveSpec(const Spec& spec, const parity::Comparison& comparison,
                                          const CallOptions& options = {}) const;
  absl::StatusOr<std::vector<Preset>> ListPresets(const CallOptions& options = {}) const;
  absl::StatusOr<ServerInfo> GetServerInfo(const CallOptions& options = {}) const;
  // NOT_FOUND: no such service. "inproc:" is always serving.
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
