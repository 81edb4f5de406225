// SPDX-License-Identifier: Apache-2.0
// Connection, the interface between Client and a transport: one virtual function per RPC, with
// plain C++ values. client/testing/mock_connection.h is an implementation for tests.
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
#include "absl/types/span.h"
#include "client/device_memory.h"
#include "client/options.h"
#include "client/position_list.h"
#include "client/shared_memory.h"
#include "client/stream.h"
#include "client/tensor.h"
#include "kernels/plan/bias_rule.h"
#include "kernels/plan/model_details.h"
#include "kernels/plan/parity_report.h"
#include "kernels/plan/plan_details.h"
#include "kernels/request/move_keys.h"
#include "kernels/request/request.h"
#include "kernels/spec/presets.h"
#include "kernels/spec/spec.h"
#include "kernels/tensor/table.h"

namespace phasor {

// One Encode call. Borrows the memory of its views until the call is done.
struct EncodeCall {
  Spec spec = {};
  PositionList positions = {};
  Dtype output_dtype = Dtype::kFloat32;
  EncodeOutput form = EncodeOutput::kEmbedding;  // or a table of a rotary spec
  std::optional<TensorView> add_to = {};         // out = embedding_scale * add_to + encoding
  double embedding_scale = 1.0;
  Pins pins = {};
  // Where the rows go: a tensor of output_dtype, of shape [tokens, dim] or the shape of the rotary
  // table. It may be the memory of add_to. If not set, the result owns the rows. Written only on
  // success.
  std::optional<MutableTensorView> output = {};
  // If set, the rows come from this table of the server, and `spec` must be empty.
  std::string table = {};
  OutOfRange out_of_range = OutOfRange::kStrict;
};

// The result of an EncodeCall or a BiasCall.
struct EncodeResult {
  TensorDesc output;  // dense
  Bytes bytes;        // empty if the call set `output`
  RunInfo info;
};

// One AttentionBias call; its result is [heads, queries, keys]. Borrows the memory of its views
// until the call is done.
struct BiasCall {
  BiasSpec spec = {};
  int64_t heads = 0;
  // One axis of integers. SWIN: two axes, or not set for the window's own grid.
  std::optional<PositionList> query_positions = {};
  std::optional<PositionList> key_positions = {};
  // Families with a table: the name of a table on the server, or the table itself.
  std::string table = {};
  std::optional<TensorView> table_values = {};
  Dtype output_dtype = Dtype::kFloat32;   // INT32 or INT64: rows of the table, [1, queries, keys]
  std::optional<TensorView> add_to = {};  // scores to which the bias is added
  Pins pins = {};
  // Where the result goes: dense, and may be the memory of add_to. If not set, the result owns it.
  std::optional<MutableTensorView> output = {};
};

// A learned table of a server.
struct TableInfo {
  std::string name;
  TensorDesc tensor;  // [positions, width] or [buckets, heads]
  std::string sha256;
};
// Where a server keeps its tables. Servers that share the directory share the tables.
struct TableStorage {
  std::string directory;  // of the server's host; empty: the server keeps no tables
  // After at most this time a server knows what others have written; 0: only when a call names it.
  absl::Duration rescan_interval = absl::ZeroDuration();
};
// One page of a list of tables.
struct TablePage {
  std::vector<TableInfo> tables;
  TableStorage storage;
  std::string next_page_token;  // empty: the last page
};

// One tensor of an ApplyRoPE call: [(batch,) tokens, heads, head_dim], or with heads before tokens.
// The last stride must be 1. Input and output have equal type and shape. They may be the same
// memory with equal strides (in place); otherwise they must not overlap. FLOAT16 and BFLOAT16
// inputs may have FLOAT8 outputs: these are the results times inv_scale, rounded to nearest even,
// with magnitudes beyond the largest finite FLOAT8 replaced by it.
struct RopeTensor {
  RopeTensor() = default;
  RopeTensor(MutableTensorView in_place)
      : input(in_place), output(std::move(in_place)) {}  // NOLINT
  RopeTensor(TensorView in, MutableTensorView out) : input(std::move(in)), output(std::move(out)) {}

  TensorView input;
  MutableTensorView output;
  std::optional<float> inv_scale = {};  // FLOAT8 outputs only: finite, > 0; 1 if not set
};

// Writes keys and values to pages of a cache instead of separate outputs (docs/paged-cache.md).
// A cache in AllocateShared memory is written where it lies, if it begins at a multiple of its
// element size and the server that leased the memory still runs. A cache on the GPU is always
// written where it lies. Any other cache is sent to the server and back as a whole. Two calls in
// flight, or two calls of a batch, must not share such a cache.
struct PagedWrite {
  // Index of the keys in RopeCall::tensors. Their output is the key cache, of shape [pages,
  // page_size, heads, head_dim], with the type of the keys or FLOAT8. Strides are free, but the
  // last one must be 1.
  int64_t key_index = 0;
  // The values, which are not rotated: [tokens, heads, head_dim] or heads first, without a batch.
  // Their output is the value cache, which follows the same rules as the key cache.
  RopeTensor values = {};
  // INT32 or INT64, [tokens]: page * page_size + slot, or -1 if the token is not written. No slot
  // may appear twice. In host memory.
  TensorView slot_mapping = {};
};

// One ApplyRoPE call. Borrows the memory of its views until the call is done. Outputs are written
// only on success.
struct RopeCall {
  Spec spec = {};
  PositionList positions = {};
  std::vector<RopeTensor> tensors = {};
  Direction direction = Direction::kForward;
  RopeLayout layout = RopeLayout::kTokensHeads;
  std::optional<PositionList> from_positions =
      {};                              // Direction::kDelta only: current positions of the keys
  std::optional<Spec> from_spec = {};  // Direction::kDelta only; `spec` if not set
  Pins pins = {};
  std::optional<PagedWrite> paged = {};
};

// One MoveKeys call (docs/move-keys.md). Borrows the memory of its pools until the call is done.
struct MoveCall {
  // Memory that holds keys, whole or in part; at least 1 byte each, and apart from each other. All
  // pools are on one GPU (DeviceMemory::Pool), or none is. A pool on a GPU or in AllocateShared
  // memory is changed where it lies, if the server that leased the memory still runs. Any other
  // pool is sent to the server as a whole, and comes back if it is written.
  std::vector<KeyPool> pools = {};
  std::vector<KeyLayout> layouts = {};
  std::vector<KeySpec> specs = {};
  std::vector<KeyLayer> layers = {};
  std::vector<KeyGroup> groups = {};
  MoveMode mode = MoveMode::kCopyOnWrite;
  std::optional<double> tolerance = {};  // COMPARE only; not set: DefaultTolerance
  Pins pins = {};                        // numerics version and backend
};

// The result of a MoveCall.
struct MoveResult {
  // The fingerprints of a KeySpec; both are equal if it has no from_spec.
  struct SpecInfo {
    std::string fingerprint;
    std::string from_fingerprint;
    friend bool operator==(const SpecInfo&, const SpecInfo&) = default;
  };
  RunInfo info;                            // spec_fingerprint is empty: see `specs`
  std::vector<SpecInfo> specs;             // one per spec
  int64_t tokens = 0;                      // of all groups, without those left out
  int64_t moved_bytes = 0;                 // read; as many are written, except by COMPARE
  std::vector<KeyDifference> differences;  // COMPARE: one per layer
};

using EncodeStream = ItemStream<EncodeCall, EncodeResult>;
using RopeStream = ItemStream<RopeCall, RunInfo>;
using MoveStream = ItemStream<MoveCall, MoveResult>;

// Everything that a spec resolves to, as numbers.
struct SpecDetails {
  using Pair = PairDetail;

  Spec spec;  // with every field set; it resolves to itself
  std::vector<Pair> pairs;
  double amplitude = 1.0;  // factor of sine and cosine
  int64_t width = 0;       // elements of an output row or of a head
  RunInfo info;
  std::optional<parity::Report> parity_difference;  // if asked for and known
};

// A spec that the server's configuration gives a name.
struct EncoderInfo {
  std::string name;  // for Spec::encoder
  std::string spec_fingerprint;
  friend bool operator==(const EncoderInfo&, const EncoderInfo&) = default;
};

// A GPU of a server.
struct ServerDevice {
  int number = 0;  // on the server
  std::string name;
  std::string uuid;
  bool working = false;  // false: it is lost, and other GPUs or the CPU compute
  std::string error;     // of its last loss; empty: it was never lost
  friend bool operator==(const ServerDevice&, const ServerDevice&) = default;
};

// What a server says about itself.
struct ServerInfo {
  std::string version;
  uint32_t numerics_version = 0;
  std::vector<std::string> backends;  // in order of preference
  std::string cpu_target;             // e.g. "AVX2"
  int cpu_threads = 0;
  std::vector<std::string> listeners;
  int64_t max_message_bytes = 0;  // 0 means no limit, here and in the next four
  int64_t max_header_bytes = 0;
  int64_t max_inflight_bytes = 0;
  int64_t inline_bytes = 0;
  int64_t max_batch_items = 0;
  std::string lease_socket;  // path on the server's host; empty: none
  std::string lease_instance;
  std::string device_uuid;            // UUID of the first of `devices`; empty: none
  std::vector<ServerDevice> devices;  // the GPUs that compute
  std::vector<EncoderInfo> encoders;  // in alphabetical order
};

enum class Health : uint8_t { kUnknown, kServing, kNotServing };

// What a connection needs to know about a call, apart from its content.
struct CallContext {
  absl::Time deadline = absl::InfiniteFuture();  // by SteadyNow
  std::optional<CancelToken> cancel = {};
  Metadata metadata = {};  // as in CallOptions
  // Whether the caller waits for `done`. If so, the connection may do all its work on the caller's
  // thread, including the waits between attempts.
  bool caller_waits = false;
  // Where set, a thread that waits for the server asks it every 20 ms. True cancels the stream or
  // the call. The wait then ends soon, also if gRPC still holds the call's memory, as it does while
  // the server's system takes no bytes. So it does soon after the deadline. `done` then runs later,
  // on another thread.
  std::function<bool()> interrupted = nullptr;
};

template <typename T>
using Done = absl::AnyInvocable<void(absl::StatusOr<T>)>;

// A transport to a server, or to the kernels in this process.
//
// Every function calls `done` exactly once, on any thread, possibly before the function returns.
// When `done` runs, nothing reads or writes the call's memory any more. The exception is shared
// memory after an error, as Client::AllocateShared says.
//
// All kinds of connections report the service's errors with equal codes and messages. They add
// DEADLINE_EXCEEDED and CANCELLED; UNAVAILABLE if no server answers; INTERNAL if an answer does not
// match its request.
//
// Threads: any thread may call any function.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void Encode(EncodeCall call, CallContext context, Done<EncodeResult> done) = 0;
  virtual void ApplyRoPE(RopeCall call, CallContext context, Done<RunInfo> done) = 0;
  // One result per call, in the order of the calls. An error of one item does not affect the
  // others.
  virtual void BatchEncode(std::vector<EncodeCall> calls, CallContext context,
                           Done<std::vector<absl::StatusOr<EncodeResult>>> done) = 0;
  virtual void BatchApplyRoPE(std::vector<RopeCall> calls, CallContext context,
                              Done<std::vector<absl::StatusOr<RunInfo>>> done) = 0;
  virtual void AttentionBias(BiasCall call, CallContext context, Done<EncodeResult> done) = 0;
  virtual void MoveKeys(MoveCall call, CallContext context, Done<MoveResult> done) = 0;
  virtual void BatchMoveKeys(std::vector<MoveCall> calls, CallContext context,
                             Done<std::vector<absl::StatusOr<MoveResult>>> done) = 0;
  // Opens a stream that ends at the context's deadline. Never nullptr; errors are reported by
  // ItemStream::Finish.
  virtual std::unique_ptr<EncodeStream> StreamEncode(CallContext context) = 0;
  virtual std::unique_ptr<RopeStream> StreamApplyRoPE(CallContext context) = 0;
  virtual std::unique_ptr<MoveStream> StreamMoveKeys(CallContext context) = 0;
  // Runs calls without a batch dimension, each of at least one token, in runs of tokens. Blocks
  // until it is done. If it fails, a part of the outputs may be written.
  virtual void ApplyRoPEInChunks(std::vector<RopeCall> entries, ChunkOptions options,
                                 CallContext context, Done<RunInfo> done) = 0;
  virtual void ResolveSpec(Spec spec, std::optional<parity::Comparison> comparison,
                           CallContext context, Done<SpecDetails> done) = 0;
  virtual void ResolveModel(Spec spec, CallContext context, Done<ModelDetails> done) = 0;
  // Allocates memory that the server of this connection maps, if that server is on this host and
  // accepts leases. Otherwise allocates ordinary memory.
  virtual void AllocateShared(int64_t bytes, CallContext context, Done<SharedMemory> done) = 0;
  // Registers GPU memory for use by calls over this connection. "inproc:": UNIMPLEMENTED.
  virtual void RegisterDeviceMemory(CudaIpcAllocation allocation, CallContext context,
                                    Done<DeviceMemory> done) = 0;
  virtual void ListPresets(CallContext context, Done<std::vector<Preset>> done) = 0;
  virtual void GetServerInfo(CallContext context, Done<ServerInfo> done) = 0;
  // Learned tables. "inproc:" has none: UNIMPLEMENTED. CreateTable may block until it is done.
  virtual void ListTables(std::string page_token, CallContext context, Done<TablePage> done) = 0;
  virtual void GetTable(std::string name, CallContext context, Done<TableInfo> done) = 0;
  virtual void CreateTable(std::string name, TensorView values, CallContext context,
                           Done<TableInfo> done) = 0;
  virtual void DeleteTable(std::string name, CallContext context,
                           absl::AnyInvocable<void(absl::Status)> done) = 0;
  // `service` is the name of a gRPC service, or empty for the whole server. NOT_FOUND: unknown
  // service.
  virtual void CheckHealth(std::string service, CallContext context, Done<Health> done) = 0;
};

}  // namespace phasor

#endif  // PHASOR_CLIENT_CONNECTION_H_
