// SPDX-License-Identifier: Apache-2.0
// What a client talks through: one virtual function per RPC, in value types of our own. Tests give
// their own (client/testing/mock_connection.h).
#ifndef PHASOR_CLIENT_CONNECTION_H_
#define PHASOR_CLIENT_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/device_memory.h"
#include "client/options.h"
#include "client/position_list.h"
#include "client/shared_memory.h"
#include "client/stream.h"
#include "client/tensor.h"
#include "kernels/plan/bias_rule.h"
#include "kernels/plan/parity_report.h"
#include "kernels/plan/plan_details.h"
#include "kernels/request/request.h"
#include "kernels/spec/presets.h"
#include "kernels/spec/spec.h"
#include "kernels/tensor/table.h"

namespace phasor {

// One Encode. Borrows the memory of its views until the call is done.
struct EncodeCall {
  Spec spec = {};
  PositionList positions = {};
  Dtype output_dtype = Dtype::kFloat32;
  EncodeOutput form = EncodeOutput::kEmbedding;  // or a table of a rotary spec
  std::optional<TensorView> add_to = {};         // out = embedding_scale * add_to + encoding
  double embedding_scale = 1.0;
  Pins pins = {};
  // Where the rows go: of output_dtype, shape [tokens, dim] or the table's; may be add_to's own
  // memory. Not set: the result owns them. Written only on success.
  std::optional<MutableTensorView> output = {};
  // Rows of this table of the server instead of a spec's encoding; `spec` stays empty then.
  std::string table = {};
  OutOfRange out_of_range = OutOfRange::kStrict;
};

struct EncodeResult {
  TensorDesc output;  // dense
  Bytes bytes;        // empty when the call named its output
  RunInfo info;
};

// One AttentionBias, [heads, queries, keys]. Borrows the memory of its views until the call is
// done.
struct BiasCall {
  BiasSpec spec = {};
  int64_t heads = 0;
  // One axis of integers; for SWIN two axes, or nothing for the window's own grid.
  std::optional<PositionList> query_positions = {};
  std::optional<PositionList> key_positions = {};
  // For the table families: the name of a table of the server, or the table itself.
  std::string table = {};
  std::optional<TensorView> table_values = {};
  Dtype output_dtype = Dtype::kFloat32;   // INT32 or INT64: rows of the table, [1, queries, keys]
  std::optional<TensorView> add_to = {};  // scores that the bias is added to
  Pins pins = {};
  // Where the result goes: dense, may be add_to's own memory. Not set: the result owns it.
  std::optional<MutableTensorView> output = {};
};

// A learned table of a server.
struct TableInfo {
  std::string name;
  TensorDesc tensor;  // [positions, width] or [buckets, heads]
  std::string sha256;
};
struct TablePage {
  std::vector<TableInfo> tables;
  std::string next_page_token;  // empty: the last page
};

// One tensor of an ApplyRoPE: [(batch,) tokens, heads, head_dim], or heads before tokens. Lanes of
// a head are contiguous. Input and output agree in type and shape; they may be the same memory with
// equal strides (in place), and must not overlap otherwise. FLOAT16 and BFLOAT16 inputs may have
// FLOAT8 outputs: results times inv_scale, rounded to nearest even, magnitudes beyond the largest
// finite FLOAT8 made that.
struct RopeTensor {
  RopeTensor() = default;
  RopeTensor(MutableTensorView in_place)
      : input(in_place), output(std::move(in_place)) {}  // NOLINT
  RopeTensor(TensorView in, MutableTensorView out) : input(std::move(in)), output(std::move(out)) {}

  TensorView input;
  MutableTensorView output;
  std::optional<float> inv_scale = {};  // FLOAT8 outputs only: finite, > 0; 1 when not set
};

// Keys and values go to pages of a cache instead of tensors of their own (docs/paged-cache.md). In
// memory of AllocateShared, pages are written where they are, if they stand on whole elements and
// until its server ends, and on a GPU always; other caches travel there and back whole, so that no
// two calls that are under way, nor two of a batch, may share one.
struct PagedWrite {
  // Of the keys among the tensors: their output is the key cache, [pages, page_size, heads,
  // head_dim] of the keys' type or FLOAT8, with any strides whose last is 1.
  int64_t key_index = 0;
  // To the value cache, likewise, not rotated: [tokens, heads, head_dim] or heads first, no batch.
  RopeTensor values = {};
  // INT32 or INT64 [tokens]: page * page_size + slot; -1: the token is not written. No slot twice.
  // Not on a GPU.
  TensorView slot_mapping = {};
};

// One ApplyRoPE. Borrows the memory of its views until the call is done; outputs are written only
// on success.
struct RopeCall {
  Spec spec = {};
  PositionList positions = {};
  std::vector<RopeTensor> tensors = {};
  Direction direction = Direction::kForward;
  RopeLayout layout = RopeLayout::kTokensHeads;
  std::optional<PositionList> from_positions =
      {};                              // Direction::kDelta only: where the keys stand now
  std::optional<Spec> from_spec = {};  // Direction::kDelta only: `spec` when not set
  Pins pins = {};
  std::optional<PagedWrite> paged = {};
};

// Streams of them.
using EncodeStream = ItemStream<EncodeCall, EncodeResult>;
using RopeStream = ItemStream<RopeCall, RunInfo>;

// Every number that a spec stands for.
struct SpecDetails {
  using Pair = PairDetail;

  Spec spec;  // every field filled in; it resolves to itself
  std::vector<Pair> pairs;
  double amplitude = 1.0;  // factor of sine and cosine
  int64_t width = 0;       // of an output row or a head
  RunInfo info;
  std::optional<parity::Report> parity_difference;  // if asked for, and known
};

// A spec that the server's configuration names.
struct EncoderInfo {
  std::string name;  // for Spec::encoder
  std::string spec_fingerprint;
  friend bool operator==(const EncoderInfo&, const EncoderInfo&) = default;
};

struct ServerInfo {
  std::string version;
  uint32_t numerics_version = 0;
  std::vector<std::string> backends;  // in order of preference
  std::string cpu_target;             // e.g. "AVX2"
  int cpu_threads = 0;
  std::vector<std::string> listeners;
  int64_t max_message_bytes = 0;  // these five: 0 means no limit
  int64_t max_header_bytes = 0;
  int64_t max_inflight_bytes = 0;
  int64_t inline_bytes = 0;
  int64_t max_batch_items = 0;
  std::string lease_socket;  // path on the server's host; empty: none
  std::string lease_instance;
  std::string device_uuid;            // of the GPU that computes; empty: none
  std::vector<EncoderInfo> encoders;  // in alphabetical order
};

enum class Health : uint8_t { kUnknown, kServing, kNotServing };

// What a connection must know about the call beside its content.
struct CallContext {
  absl::Time deadline = absl::InfiniteFuture();
  std::optional<CancelToken> cancel = {};
  // The caller waits for `done`: its thread may do the work, sleep between attempts included.
  bool caller_waits = false;
};

template <typename T>
using Done = absl::AnyInvocable<void(absl::StatusOr<T>)>;

// Each function calls `done` exactly once, on any thread, perhaps before it returns. When it does,
// nothing reads or writes the call's memory any more; shared memory may still be, after an error
// (AllocateShared).
//
// Errors are the service's own, with equal codes and messages from every kind of connection. On top
// of those: DEADLINE_EXCEEDED and CANCELLED; UNAVAILABLE when no server answers; INTERNAL when an
// answer does not fit its request.
//
// Threads: all functions from any thread.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void Encode(EncodeCall call, CallContext context, Done<EncodeResult> done) = 0;
  virtual void ApplyRoPE(RopeCall call, CallContext context, Done<RunInfo> done) = 0;
  // One result per call, in order; an item's error spoils no other.
  virtual void BatchEncode(std::vector<EncodeCall> calls, CallContext context,
                           Done<std::vector<absl::StatusOr<EncodeResult>>> done) = 0;
  virtual void BatchApplyRoPE(std::vector<RopeCall> calls, CallContext context,
                              Done<std::vector<absl::StatusOr<RunInfo>>> done) = 0;
  virtual void AttentionBias(BiasCall call, CallContext context, Done<EncodeResult> done) = 0;
  // A stream that ends at the context's deadline. Never nullptr; what is wrong, Finish says.
  virtual std::unique_ptr<EncodeStream> StreamEncode(CallContext context) = 0;
  virtual std::unique_ptr<RopeStream> StreamApplyRoPE(CallContext context) = 0;
  // Calls without a batch, whose tensors have at least one token, run by run. Blocks until it is
  // done. Outputs may be written in part when it fails.
  virtual void ApplyRoPEInChunks(std::vector<RopeCall> entries, ChunkOptions options,
                                 CallContext context, Done<RunInfo> done) = 0;
  virtual void ResolveSpec(Spec spec, std::optional<parity::Comparison> comparison,
                           CallContext context, Done<SpecDetails> done) = 0;
  // Memory that calls over this connection use where it lies, if the server is on this host and
  // takes leases; else ordinary memory.
  virtual void AllocateShared(int64_t bytes, CallContext context, Done<SharedMemory> done) = 0;
  // Memory of a GPU that calls over this connection use where it lies. "inproc:": UNIMPLEMENTED.
  virtual void RegisterDeviceMemory(CudaIpcAllocation allocation, CallContext context,
                                    Done<DeviceMemory> done) = 0;
  virtual void ListPresets(CallContext context, Done<std::vector<Preset>> done) = 0;
  virtual void GetServerInfo(CallContext context, Done<ServerInfo> done) = 0;
  // Learned tables. "inproc:" keeps none: UNIMPLEMENTED. CreateTable may block until it is done.
  virtual void ListTables(std::string page_token, CallContext context, Done<TablePage> done) = 0;
  virtual void GetTable(std::string name, CallContext context, Done<TableInfo> done) = 0;
  virtual void CreateTable(std::string name, TensorView values, CallContext context,
                           Done<TableInfo> done) = 0;
  virtual void DeleteTable(std::string name, CallContext context,
                           absl::AnyInvocable<void(absl::Status)> done) = 0;
  // `service` is a gRPC service name, empty for the server as a whole. NOT_FOUND: no such service.
  virtual void CheckHealth(std::string service, CallContext context, Done<Health> done) = 0;
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_CONNECTION_H_
