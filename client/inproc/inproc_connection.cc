// SPDX-License-Identifier: Apache-2.0
// Computes calls in the caller's process, with the kernels of the server.
#include "client/inproc/inproc_connection.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "client/common/calls.h"
#include "client/common/runs.h"
#include "client/inproc/inproc_stream.h"
#include "kernels/backend/backend.h"
#include "kernels/backends.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "kernels/plan/frequencies.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/plan_details.h"
#include "kernels/request/bias.h"
#include "kernels/request/move_keys.h"
#include "kernels/request/paged_cache.h"
#include "kernels/request/slot_positions.h"
#include "kernels/spec/presets.h"

namespace phasor::client_internal {
namespace {

// Plans by spec. A process uses only a few; if there are too many, all are dropped.
// Threads: any.
class Plans {
 public:
  absl::StatusOr<std::shared_ptr<const Plan>> Get(const ResolvedSpec& spec) {
    {
      std::lock_guard lock(mutex_);
      if (auto it = plans_.find(spec); it != plans_.end()) return it->second;
    }
    PHASOR_ASSIGN_OR_RETURN(std::shared_ptr<const Plan> plan, CompilePlan(spec));
    std::lock_guard lock(mutex_);
    if (plans_.size() >= kMaxPlans) plans_.clear();
    plans_.emplace(spec, plan);
    return plan;
  }

 private:
  static constexpr size_t kMaxPlans = 256;
  std::mutex mutex_;
  absl::flat_hash_map<ResolvedSpec, std::shared_ptr<const Plan>> plans_ ABSL_GUARDED_BY(mutex_);
};

absl::Status NoTables() {
  return absl::UnimplementedError(
      "tables: not kept in process; must be a server's (--server, Client::Connect)");
}

// Gives `source` the position numbers and checks them.
absl::Status SetPositions(const PositionList& positions, PositionSource& source,
                          std::string_view path) {
  source.data = PositionBytes(positions).data();
  return CheckPositionValues(source, path);
}

// Where the result of a call goes: to the caller's tensor, or to `bytes` of memory of the result.
template <typename Call>
absl::StatusOr<std::byte*> PlaceOf(const Call& call, int64_t bytes, std::string_view path,
                                   EncodeResult* result) {
  if (call.output.has_value()) {
    PHASOR_RETURN_IF_ERROR(CheckOutput(*call.output, result->output, StrCat(path, ".output")));
    return call.output->data;
  }
  PHASOR_ASSIGN_OR_RETURN(result->bytes, Bytes::Allocate(bytes));
  return result->bytes.data();
}

// A rotation without its positions, and what it was prepared to.
struct PreparedCall {
  RopeCall call;
  PreparedRope prepared;
};

// Whether a tensor is as another, wherever both lie.
bool SameTensor(const RopeTensor& a, const RopeTensor& b) {
  return a.input.desc == b.input.desc && a.output.desc == b.output.desc &&
         a.input.bytes == b.input.bytes && a.output.bytes == b.output.bytes &&
         (a.input.data == a.output.data) == (b.input.data == b.output.data) &&
         a.inv_scale == b.inv_scale && a.input.device.memory == nullptr &&
         a.output.device.memory == nullptr;
}

// Whether `call` needs no other preparation than that of its positions.
bool IsPrepared(const RopeCall& call, const PreparedCall& last) {
  return call.direction == last.call.direction && call.layout == last.call.layout &&
         !call.from_positions.has_value() && !call.from_spec.has_value() &&
         std::equal(call.tensors.begin(), call.tensors.end(), last.call.tensors.begin(),
                    last.call.tensors.end(), SameTensor) &&
         call.pins == last.call.pins && call.spec == last.call.spec;
}

// The connection of the target "inproc:". Owns the backend and the plans. Threads: any.
class InprocConnection final : public Connection,
                               public std::enable_shared_from_this<InprocConnection> {
 public:
  explicit InprocConnection(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}
  ~InprocConnection() override { delete last_.load(); }

  void Encode(EncodeCall call, CallContext context, Done<EncodeResult> done) override {
    const absl::Status status = CheckContext(context);
    done(status.ok() ? RunEncode(call, kItemPath) : status);
  }

  void ApplyRoPE(RopeCall call, CallContext context, Done<RunInfo> done) override {
    const absl::Status status = CheckContext(context);
    done(status.ok() ? RunLikeLast(std::move(call)) : status);
  }

  // A batch that has begun is not cancelled: outputs are written only if the call succeeds.
  void BatchEncode(std::vector<EncodeCall> calls, CallContext context,
                   Done<std::vector<absl::StatusOr<EncodeResult>>> done) override {
    if (absl::Status status = CheckContext(context); !status.ok()) return done(status);
    std::vector<absl::StatusOr<EncodeResult>> results;
    for (size_t i = 0; i < calls.size(); ++i) {
      results.push_back(RunEncode(calls[i], BatchItemPath(i)));
    }
    done(std::move(results));
  }

  void BatchApplyRoPE(std::vector<RopeCall> calls, CallContext context,
                      Done<std::vector<absl::StatusOr<RunInfo>>> done) override {
    if (absl::Status status = CheckContext(context); !status.ok()) return done(status);
    std::vector<absl::StatusOr<RunInfo>> results;
    for (size_t i = 0; i < calls.size(); ++i) {
      results.push_back(RunRope(calls[i], BatchItemPath(i)));
    }
    done(std::move(results));
  }

  void AttentionBias(BiasCall call, CallContext context, Done<EncodeResult> done) override {
    const absl::Status status = CheckContext(context);
    done(status.ok() ? RunBias(call, kItemPath) : status);
  }

  void MoveKeys(MoveCall call, CallContext context, Done<MoveResult> done) override {
    const absl::Status status = CheckContext(context);
    done(status.ok() ? RunMove(call, kItemPath, context) : status);
  }

  void BatchMoveKeys(std::vector<MoveCall> calls, CallContext context,
                     Done<std::vector<absl::StatusOr<MoveResult>>> done) override {
    if (absl::Status status = CheckContext(context); !status.ok()) return done(status);
    std::vector<absl::StatusOr<MoveResult>> results;
    for (size_t i = 0; i < calls.size(); ++i) {
      results.push_back(RunMove(calls[i], BatchItemPath(i), context));
    }
    done(std::move(results));
  }

  std::unique_ptr<EncodeStream> StreamEncode(CallContext context) override {
    return std::make_unique<InprocStream<EncodeCall, EncodeResult>>(
        [self = shared_from_this()](const EncodeCall& call) {
          return self->RunEncode(call, kItemPath);
        },
        std::move(context));
  }
  std::unique_ptr<RopeStream> StreamApplyRoPE(CallContext context) override {
    return std::make_unique<InprocStream<RopeCall, RunInfo>>(
        [self = shared_from_this()](const RopeCall& call) {
          return self->RunRope(call, kItemPath);
        },
        std::move(context));
  }
  std::unique_ptr<MoveStream> StreamMoveKeys(CallContext context) override {
    return std::make_unique<InprocStream<MoveCall, MoveResult>>(
        [self = shared_from_this(), context](const MoveCall& call) {
          return self->RunMove(call, kItemPath, context);
        },
        context);
  }
  void ApplyRoPEInChunks(std::vector<RopeCall> entries, ChunkOptions options, CallContext context,
                         Done<RunInfo> done) override {
    done(RunInChunks(entries, options, context));
  }

  void ListTables(std::string, CallContext, Done<TablePage> done) override { done(NoTables()); }
  void GetTable(std::string, CallContext, Done<TableInfo> done) override { done(NoTables()); }
  void CreateTable(std::string, TensorView, CallContext, Done<TableInfo> done) override {
    done(NoTables());
  }
  void DeleteTable(std::string, CallContext, absl::AnyInvocable<void(absl::Status)> done) override {
    done(NoTables());
  }

  void ResolveSpec(Spec spec, std::optional<parity::Comparison> comparison, CallContext context,
                   Done<SpecDetails> done) override {
    const absl::Status status = CheckContext(context);
    done(status.ok() ? Details(spec, comparison) : status);
  }

  void ResolveModel(Spec spec, CallContext context, Done<ModelDetails> done) override {
    const absl::Status status = CheckContext(context);
    done(status.ok() ? DetailsOfModel(spec) : status);
  }

  void AllocateShared(int64_t bytes, CallContext, Done<SharedMemory> done) override {
    done(SharedMemory::Ordinary(bytes));
  }
  void RegisterDeviceMemory(CudaIpcAllocation, CallContext, Done<DeviceMemory> done) override {
    done(absl::UnimplementedError(
        "device memory: not taken in process; must be registered with a server of this host"));
  }

  void ListPresets(CallContext, Done<std::vector<Preset>> done) override {
    done(std::vector<Preset>(Presets().begin(), Presets().end()));
  }

  void GetServerInfo(CallContext, Done<ServerInfo> done) override {
    done(ServerInfo{.version = PHASOR_VERSION,
                    .numerics_version = kNumericsVersion,
                    .backends = {std::string(backend_->name())},
                    .cpu_target = backend_->target(),
                    .cpu_threads = backend_->threads()});
  }

  void CheckHealth(std::string, CallContext, Done<Health> done) override { done(Health::kServing); }

 private:
  absl::StatusOr<EncodeResult> RunEncode(const EncodeCall& call, std::string_view path);
  absl::StatusOr<RunInfo> RunRope(const RopeCall& call, std::string_view path);
  // RunRope with the preparation of the last call, if this one is like it: programs make the same
  // call again and again, with other numbers.
  absl::StatusOr<RunInfo> RunLikeLast(RopeCall call);
  absl::StatusOr<RunInfo> RunInChunks(const std::vector<RopeCall>& entries,
                                      const ChunkOptions& options, const CallContext& context);
  // Checks a call and reads its positions.
  absl::StatusOr<PreparedRope> Prepare(const RopeCall& call, std::string_view path);
  absl::Status Rotate(const PreparedRope& prepared, absl::Span<const RopeTensor> tensors,
                      RunInfo* info);
  absl::StatusOr<EncodeResult> RunBias(const BiasCall& call, std::string_view path);
  absl::StatusOr<MoveResult> RunMove(const MoveCall& call, std::string_view path,
                                     const CallContext& context);
  absl::StatusOr<SpecDetails> Details(const Spec& spec,
                                      const std::optional<parity::Comparison>& comparison);

  absl::Status CheckBackendPin(const Pins& pins, std::string_view path) const {
    if (pins.backend.empty() || pins.backend == backend_->name()) return absl::OkStatus();
    return absl::FailedPreconditionError(StrCat(path, ".pins.backend: '", pins.backend,
                                                "' does not run here; must be '", backend_->name(),
                                                "' or empty"));
  }
  // Runs a job and records in `info` which backend computed it.
  absl::Status Run(const Job& job, RunInfo* info) {
    JobResult result;
    backend_->RunEach({&job, 1}, {&result, 1});
    info->backend = std::string(result.backend);
    return result.status;
  }
  // The info of a call that has nothing to compute.
  RunInfo Info(const Plan& plan) const {
    return {plan.fingerprint, kNumericsVersion, std::string(backend_->name())};
  }

  const std::unique_ptr<Backend> backend_;
  Plans plans_;
  std::atomic<PreparedCall*> last_ = nullptr;  // owned; nullptr while a call uses it
};

absl::StatusOr<EncodeResult> InprocConnection::RunEncode(const EncodeCall& call,
                                                         std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const EncodeRequest request, ToRequest(call, path));
  auto plans = [this](const ResolvedSpec& spec) { return plans_.Get(spec); };
  PHASOR_ASSIGN_OR_RETURN(PreparedEncode prepared, PrepareEncode(request, plans, path));
  PHASOR_RETURN_IF_ERROR(CheckBackendPin(call.pins, path));
  PHASOR_RETURN_IF_ERROR(
      SetPositions(call.positions, prepared.positions, StrCat(path, ".positions")));

  const absl::Span<const int64_t> shape = prepared.output.shape;
  EncodeResult result{.output = {prepared.output.dtype, {shape.begin(), shape.end()}, {}},
                      .info = Info(*prepared.plan)};
  PHASOR_ASSIGN_OR_RETURN(std::byte * output, PlaceOf(call, prepared.output_bytes, path, &result));
  if (prepared.output_bytes == 0) return result;
  const bool strided = call.output.has_value() && !IsDense(call.output->desc);
  Bytes dense;  // used if the caller's rows are not dense
  if (strided && !RowsAreDense(call.output->desc)) {
    PHASOR_ASSIGN_OR_RETURN(dense, Bytes::Allocate(prepared.output_bytes));
    output = dense.data();
  }
  EncodeJob job =
      MakeEncodeJob(prepared, call.add_to.has_value() ? call.add_to->data : nullptr, output);
  if (strided && dense.size() == 0) {
    job.out_row_bytes = call.output->desc.strides[0] * SizeOf(job.dtype);
  }
  PHASOR_RETURN_IF_ERROR(Run(job, &result.info));
  if (dense.size() > 0) CopyFromDense(dense.data(), *call.output);
  return result;
}

absl::StatusOr<PreparedRope> InprocConnection::Prepare(const RopeCall& call,
                                                       std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const RopeRequest request, ToRequest(call, path));
  auto plans = [this](const ResolvedSpec& spec) { return plans_.Get(spec); };
  PHASOR_ASSIGN_OR_RETURN(PreparedRope prepared, PrepareRope(request, plans, path));
  PHASOR_RETURN_IF_ERROR(CheckBackendPin(call.pins, path));
  PHASOR_RETURN_IF_ERROR(
      SetPositions(call.positions, prepared.positions, StrCat(path, ".positions")));
  if (prepared.from_positions.has_value()) {
    PHASOR_RETURN_IF_ERROR(SetPositions(*call.from_positions, *prepared.from_positions,
                                        StrCat(path, ".from_positions")));
  }
  if (prepared.pages.has_value()) {
    PHASOR_RETURN_IF_ERROR(SetSlots(call.paged->slot_mapping.data, path, prepared));
  }
  return prepared;
}

absl::Status InprocConnection::Rotate(const PreparedRope& prepared,
                                      absl::Span<const RopeTensor> tensors, RunInfo* info) {
  absl::InlinedVector<const std::byte*, 4> x;
  absl::InlinedVector<std::byte*, 4> y;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    x.push_back(tensors[i].input.data);
    y.push_back(tensors[i].output.data);
    bytes += prepared.tensors[i].output_bytes;
  }
  if (bytes == 0) return absl::OkStatus();
  RotaryJob job = MakeRotaryJob(prepared, x, y);
  for (size_t i = 0; i < tensors.size(); ++i) {
    job.tensors[i].x_strides = RotaryStridesOf(tensors[i].input.desc, prepared.layout);
    if (!prepared.tensors[i].cache_shape.empty()) continue;
    job.tensors[i].y_strides = RotaryStridesOf(tensors[i].output.desc, prepared.layout);
  }
  return Run(job, info);
}

absl::StatusOr<RunInfo> InprocConnection::RunRope(const RopeCall& call, std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const PreparedRope prepared, Prepare(call, path));
  std::vector<RopeTensor> tensors = call.tensors;
  if (call.paged.has_value()) tensors.push_back(call.paged->values);
  RunInfo info = Info(*prepared.plan);
  PHASOR_RETURN_IF_ERROR(Rotate(prepared, tensors, &info));
  return info;
}

absl::StatusOr<RunInfo> InprocConnection::RunLikeLast(RopeCall call) {
  if (call.paged.has_value() || call.direction == Direction::kDelta) {
    return RunRope(call, kItemPath);
  }
  std::unique_ptr<PreparedCall> use(last_.exchange(nullptr));  // now no other thread has it
  if (use != nullptr && IsPrepared(call, *use)) {
    const std::string path = StrCat(kItemPath, ".positions");
    PHASOR_RETURN_IF_ERROR(CheckPositions(call.positions, path));
    PHASOR_RETURN_IF_ERROR(ReplacePositions(call.positions.value(), path, &use->prepared));
    PHASOR_RETURN_IF_ERROR(SetPositions(call.positions, use->prepared.positions, path));
  } else {
    PHASOR_ASSIGN_OR_RETURN(PreparedRope prepared, Prepare(call, kItemPath));
    if (use == nullptr) use = std::make_unique<PreparedCall>();
    use->prepared = std::move(prepared);
  }
  RunInfo info = Info(*use->prepared.plan);
  PHASOR_RETURN_IF_ERROR(Rotate(use->prepared, call.tensors, &info));
  use->prepared.positions = {};  // they borrow from the caller
  call.positions = {};
  use->call = std::move(call);
  delete last_.exchange(use.release());
  return info;
}

absl::StatusOr<RunInfo> InprocConnection::RunInChunks(const std::vector<RopeCall>& entries,
                                                      const ChunkOptions& options,
                                                      const CallContext& context) {
  int64_t all = 0, done = 0;
  for (const RopeCall& entry : entries) all += TokensOf(entry);
  RunInfo info;
  for (const RopeCall& entry : entries) {
    PHASOR_ASSIGN_OR_RETURN(const PreparedRope prepared, Prepare(entry, kItemPath));
    info = Info(*prepared.plan);
    const int64_t step = std::max<int64_t>(1, options.chunk_bytes / BytesPerToken(entry));
    for (int64_t first = 0; first < prepared.tokens; first += step) {
      PHASOR_RETURN_IF_ERROR(CheckContext(context));
      const TokenRun run{first, std::min(step, prepared.tokens - first)};
      PHASOR_RETURN_IF_ERROR(
          Rotate(SliceTokens(prepared, run.first, run.tokens), RunOf(entry, run).tensors, &info));
      done += run.tokens;
      if (options.progress) options.progress(done, all);
    }
  }
  return info;
}

absl::StatusOr<EncodeResult> InprocConnection::RunBias(const BiasCall& call,
                                                       std::string_view path) {
  PHASOR_ASSIGN_OR_RETURN(const BiasRequest request, ToRequest(call, path));
  PHASOR_ASSIGN_OR_RETURN(PreparedBias prepared, PrepareBias(request, nullptr, path));
  PHASOR_RETURN_IF_ERROR(CheckBackendPin(call.pins, path));
  if (call.query_positions.has_value()) {
    prepared.queries.data = PositionBytes(*call.query_positions).data();
  }
  if (call.key_positions.has_value()) {
    prepared.keys.data = PositionBytes(*call.key_positions).data();
  }
  EncodeResult result{
      .output = prepared.output,
      .info = {prepared.fingerprint, kNumericsVersion, std::string(backend_->name())}};
  PHASOR_ASSIGN_OR_RETURN(std::byte* const output,
                          PlaceOf(call, prepared.output_bytes, path, &result));
  PHASOR_RETURN_IF_ERROR(CheckBiasPositions(prepared, path));
  if (prepared.output_bytes == 0) return result;
  const BiasJob job =
      MakeBiasJob(prepared, call.table_values.has_value() ? call.table_values->data : nullptr,
                  call.add_to.has_value() ? call.add_to->data : nullptr, output);
  PHASOR_RETURN_IF_ERROR(Run(job, &result.info));
  return result;
}

absl::StatusOr<MoveResult> InprocConnection::RunMove(const MoveCall& call, std::string_view path,
                                                     const CallContext& context) {
  PHASOR_ASSIGN_OR_RETURN(const MoveRequest request, ToRequest(call, path));
  auto plans = [this](const ResolvedSpec& spec) { return plans_.Get(spec); };
  PHASOR_ASSIGN_OR_RETURN(PreparedMove prepared, PrepareMove(request, plans, path));
  PHASOR_RETURN_IF_ERROR(CheckBackendPin(call.pins, path));
  std::vector<std::byte*> pools;
  for (const KeyPool& pool : call.pools) pools.push_back(pool.memory().data());
  PHASOR_RETURN_IF_ERROR(ReadSlotPositions(pools, path, &prepared));
  MoveResult result{.info = {"", kNumericsVersion, std::string(backend_->name())},
                    .tokens = prepared.tokens,
                    .moved_bytes = prepared.moved_bytes};
  for (const PreparedMove::Spec& spec : prepared.specs) {
    result.specs.push_back({spec.fingerprint, spec.from_fingerprint});
  }
  const size_t compared = prepared.mode == MoveMode::kCompare ? prepared.layers : 0;
  std::vector<std::byte> report(compared * sizeof(KeyReport));
  MoveJob job = MakeMoveJob(prepared, pools, report.data());
  Stop stop([&context] { return CheckContext(context); });
  job.stop = &stop;
  PHASOR_RETURN_IF_ERROR(Run(job, &result.info));
  if (absl::Status why = stop.why(); !why.ok()) {
    return stop.begun() && prepared.mode == MoveMode::kMove ? HalfMoved(why) : why;
  }
  for (size_t i = 0; i < compared; ++i) {
    result.differences.push_back(DifferenceOf(report.data(), i));
  }
  return result;
}

absl::StatusOr<SpecDetails> InprocConnection::Details(
    const Spec& spec, const std::optional<parity::Comparison>& comparison) {
  PHASOR_ASSIGN_OR_RETURN(const ResolvedSpec resolved, phasor::ResolveSpec(spec, "spec"));
  PHASOR_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan> plan, plans_.Get(resolved));
  std::optional<parity::Report> difference;
  if (comparison.has_value()) {
    PHASOR_ASSIGN_OR_RETURN(difference, parity::Compare(spec, *comparison));
  }
  return SpecDetails{.spec = ToSpec(resolved),
                     .pairs = DetailsOf(*plan),
                     .amplitude = plan->amplitude,
                     .width = resolved.kind == SpecKind::kRotary ? resolved.head_dim : resolved.dim,
                     .info = Info(*plan),
                     .parity_difference = std::move(difference)};
}

}  // namespace

absl::StatusOr<std::shared_ptr<Connection>> MakeInprocConnection(const ClientOptions& options) {
  PHASOR_ASSIGN_OR_RETURN(
      std::unique_ptr<Backend> backend,
      MakeBackend({.name = options.inproc_backend, .threads = options.inproc_threads}));
  return std::make_shared<InprocConnection>(std::move(backend));
}

}  // namespace phasor::client_internal
