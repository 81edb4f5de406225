// SPDX-License-Identifier: Apache-2.0
// phasor::Client: gives each call its deadline and pins, and turns the callbacks of a connection
// into return values and futures.
#include "client/client.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "client/common/calls.h"
#include "client/common/runs.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"

namespace phasor {
namespace {

constexpr int64_t kMaxChunkBytes = int64_t{1} << 30;

// Calls `method` of the connection and waits for its answer.
template <typename Answer, typename Method, typename... Arguments>
Answer Wait(Connection& connection, Method method, Arguments&&... arguments) {
  // These live on this stack frame: the callback does not touch them after it has woken the waiting
  // thread.
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<Answer> result;
  (connection.*method)(std::forward<Arguments>(arguments)..., [&](Answer answer) {
    std::lock_guard lock(mutex);
    result = std::move(answer);
    answered.notify_one();
  });
  std::unique_lock lock(mutex);
  answered.wait(lock, [&] { return result.has_value(); });
  return *std::move(result);
}

template <typename Call>
void FillPins(Call& call, const Pins& pins) {
  if (call.pins == Pins{}) call.pins = pins;
}

template <typename Call>
void FillPins(std::vector<Call>& calls, const Pins& pins) {
  for (Call& call : calls) FillPins(call, pins);
}

// A stream that adds the pins of the stream to its calls.
template <typename Call, typename Result>
class PinnedStream final : public ItemStream<Call, Result> {
 public:
  PinnedStream(std::unique_ptr<ItemStream<Call, Result>> stream, Pins pins)
      : stream_(std::move(stream)), pins_(std::move(pins)) {}

  bool WaitToWrite() override { return stream_->WaitToWrite(); }
  absl::Status Write(int64_t id, Call call) override {
    FillPins(call, pins_);
    return stream_->Write(id, std::move(call));
  }
  std::optional<StreamAnswer<Result>> Read() override { return stream_->Read(); }
  void WritesDone() override { stream_->WritesDone(); }
  absl::Status Finish() override { return stream_->Finish(); }

 private:
  const std::unique_ptr<ItemStream<Call, Result>> stream_;
  const Pins pins_;
};

template <typename Call, typename Result>
std::unique_ptr<ItemStream<Call, Result>> Pinned(std::unique_ptr<ItemStream<Call, Result>> stream,
                                                 const Pins& pins) {
  return std::make_unique<PinnedStream<Call, Result>>(std::move(stream), pins);
}

}  // namespace

Client::Client(std::shared_ptr<Connection> connection, const ClientOptions& options)
    : connection_(std::move(connection)), timeout_(options.timeout) {}

CallContext Client::Context(const CallOptions& options, bool caller_waits) const {
  absl::Duration left = options.timeout.value_or(timeout_);
  if (options.deadline.has_value()) left = std::min(left, *options.deadline - absl::Now());
  return {.deadline = SteadyNow() + left,
          .cancel = options.cancel,
          .metadata = options.metadata,
          .caller_waits = caller_waits};
}

absl::StatusOr<RunInfo> Client::Encode(const Spec& spec, PositionList positions,
                                       MutableTensorView output, const CallOptions& options) const {
  const Dtype dtype = output.desc.dtype;
  auto result = Encode(EncodeCall{.spec = spec,
                                  .positions = std::move(positions),
                                  .output_dtype = dtype,
                                  .output = std::move(output)},
                       options);
  if (!result.ok()) return std::move(result).status();
  return std::move(result->info);
}

absl::StatusOr<EncodeResult> Client::Encode(EncodeCall call, const CallOptions& options) const {
  FillPins(call, options.pins);
  return Wait<absl::StatusOr<EncodeResult>>(*connection_, &Connection::Encode, std::move(call),
                                            Context(options, true));
}

absl::StatusOr<std::vector<absl::StatusOr<EncodeResult>>> Client::BatchEncode(
    std::vector<EncodeCall> calls, const CallOptions& options) const {
  FillPins(calls, options.pins);
  return Wait<absl::StatusOr<std::vector<absl::StatusOr<EncodeResult>>>>(
      *connection_, &Connection::BatchEncode, std::move(calls), Context(options, true));
}

void Client::EncodeAsync(EncodeCall call, Done<EncodeResult> done,
                         const CallOptions& options) const {
  FillPins(call, options.pins);
  connection_->Encode(std::move(call), Context(options, false), std::move(done));
}

absl::StatusOr<RunInfo> Client::ApplyRoPE(const Spec& spec, PositionList positions,
                                          absl::Span<const RopeTensor> tensors,
                                          const CallOptions& options) const {
  return ApplyRoPE(RopeCall{.spec = spec,
                            .positions = std::move(positions),
                            .tensors = {tensors.begin(), tensors.end()}},
                   options);
}

absl::StatusOr<RunInfo> Client::ApplyRoPE(RopeCall call, const CallOptions& options) const {
  FillPins(call, options.pins);
  return Wait<absl::StatusOr<RunInfo>>(*connection_, &Connection::ApplyRoPE, std::move(call),
                                       Context(options, true));
}

absl::StatusOr<std::vector<absl::StatusOr<RunInfo>>> Client::BatchApplyRoPE(
    std::vector<RopeCall> calls, const CallOptions& options) const {
  FillPins(calls, options.pins);
  return Wait<absl::StatusOr<std::vector<absl::StatusOr<RunInfo>>>>(
      *connection_, &Connection::BatchApplyRoPE, std::move(calls), Context(options, true));
}

void Client::ApplyRoPEAsync(RopeCall call, Done<RunInfo> done, const CallOptions& options) const {
  FillPins(call, options.pins);
  connection_->ApplyRoPE(std::move(call), Context(options, false), std::move(done));
}

std::future<absl::StatusOr<RunInfo>> Client::ApplyRoPEAsync(RopeCall call,
                                                            const CallOptions& options) const {
  auto [future, done] = MakeFuture<RunInfo>();
  ApplyRoPEAsync(std::move(call), std::move(done), options);
  return std::move(future);
}

absl::StatusOr<RunInfo> Client::ApplyRoPEInChunks(RopeCall call, const ChunkOptions& chunks,
                                                  const CallOptions& options) const {
  if (chunks.chunk_bytes < 1 || chunks.chunk_bytes > kMaxChunkBytes) {
    return Invalid("chunk_bytes: ", chunks.chunk_bytes, " is out of range; must be in [1, 2^30]");
  }
  FillPins(call, options.pins);
  PHASOR_RETURN_IF_ERROR(client_internal::ToRequest(call, client_internal::kItemPath).status());
  auto entries = client_internal::CutBatch(call);
  if (!entries.has_value()) return ApplyRoPE(std::move(call), options);
  return Wait<absl::StatusOr<RunInfo>>(*connection_, &Connection::ApplyRoPEInChunks,
                                       *std::move(entries), chunks, Context(options, true));
}

absl::StatusOr<SharedMemory> Client::AllocateShared(int64_t bytes,
                                                    const CallOptions& options) const {
  return Wait<absl::StatusOr<SharedMemory>>(*connection_, &Connection::AllocateShared, bytes,
                                            Context(options, true));
}

absl::StatusOr<DeviceMemory> Client::RegisterDeviceMemory(CudaIpcAllocation allocation,
                                                          const CallOptions& options) const {
  return Wait<absl::StatusOr<DeviceMemory>>(*connection_, &Connection::RegisterDeviceMemory,
                                            std::move(allocation), Context(options, true));
}

std::unique_ptr<EncodeStream> Client::StreamEncode(const CallOptions& options) const {
  return Pinned(connection_->StreamEncode(Context(options, true)), options.pins);
}

std::unique_ptr<RopeStream> Client::StreamApplyRoPE(const CallOptions& options) const {
  return Pinned(connection_->StreamApplyRoPE(Context(options, true)), options.pins);
}

absl::StatusOr<EncodeResult> Client::AttentionBias(BiasCall call,
                                                   const CallOptions& options) const {
  FillPins(call, options.pins);
  return Wait<absl::StatusOr<EncodeResult>>(*connection_, &Connection::AttentionBias,
                                            std::move(call), Context(options, true));
}

absl::StatusOr<MoveResult> Client::MoveKeys(MoveCall call, const CallOptions& options) const {
  FillPins(call, options.pins);
  return Wait<absl::StatusOr<MoveResult>>(*connection_, &Connection::MoveKeys, std::move(call),
                                          Context(options, true));
}

absl::StatusOr<std::vector<absl::StatusOr<MoveResult>>> Client::BatchMoveKeys(
    std::vector<MoveCall> calls, const CallOptions& options) const {
  PHASOR_RETURN_IF_ERROR(client_internal::CheckPoolsApart(calls));
  FillPins(calls, options.pins);
  return Wait<absl::StatusOr<std::vector<absl::StatusOr<MoveResult>>>>(
      *connection_, &Connection::BatchMoveKeys, std::move(calls), Context(options, true));
}

std::unique_ptr<MoveStream> Client::StreamMoveKeys(const CallOptions& options) const {
  return Pinned(connection_->StreamMoveKeys(Context(options, true)), options.pins);
}

absl::StatusOr<std::vector<TableInfo>> Client::ListTables(const CallOptions& options) const {
  const CallContext context = Context(options, true);  // one deadline for all pages
  std::vector<TableInfo> tables;
  std::string page_token;
  do {
    auto page =
        Wait<absl::StatusOr<TablePage>>(*connection_, &Connection::ListTables, page_token, context);
    if (!page.ok()) return std::move(page).status();
    for (TableInfo& table : page->tables) tables.push_back(std::move(table));
    page_token = std::move(page->next_page_token);
  } while (!page_token.empty());
  return tables;
}

absl::StatusOr<TableStorage> Client::GetTableStorage(const CallOptions& options) const {
  auto page = Wait<absl::StatusOr<TablePage>>(*connection_, &Connection::ListTables, "",
                                              Context(options, true));
  if (!page.ok()) return std::move(page).status();
  return std::move(page->storage);
}

absl::StatusOr<TableInfo> Client::GetTable(std::string_view name,
                                           const CallOptions& options) const {
  return Wait<absl::StatusOr<TableInfo>>(*connection_, &Connection::GetTable, std::string(name),
                                         Context(options, true));
}

absl::StatusOr<TableInfo> Client::CreateTable(std::string_view name, const TensorView& values,
                                              const CallOptions& options) const {
  return Wait<absl::StatusOr<TableInfo>>(*connection_, &Connection::CreateTable, std::string(name),
                                         values, Context(options, true));
}

absl::Status Client::DeleteTable(std::string_view name, const CallOptions& options) const {
  return Wait<absl::Status>(*connection_, &Connection::DeleteTable, std::string(name),
                            Context(options, true));
}

absl::StatusOr<SpecDetails> Client::ResolveSpec(const Spec& spec,
                                                const CallOptions& options) const {
  return Wait<absl::StatusOr<SpecDetails>>(*connection_, &Connection::ResolveSpec, spec,
                                           std::nullopt, Context(options, true));
}

absl::StatusOr<SpecDetails> Client::ResolveSpec(const Spec& spec,
                                                const parity::Comparison& comparison,
                                                const CallOptions& options) const {
  return Wait<absl::StatusOr<SpecDetails>>(*connection_, &Connection::ResolveSpec, spec, comparison,
                                           Context(options, true));
}

absl::StatusOr<ModelDetails> Client::ResolveModel(const Spec& spec,
                                                  const CallOptions& options) const {
  return Wait<absl::StatusOr<ModelDetails>>(*connection_, &Connection::ResolveModel, spec,
                                            Context(options, true));
}

absl::StatusOr<std::vector<Preset>> Client::ListPresets(const CallOptions& options) const {
  return Wait<absl::StatusOr<std::vector<Preset>>>(*connection_, &Connection::ListPresets,
                                                   Context(options, true));
}

absl::StatusOr<ServerInfo> Client::GetServerInfo(const CallOptions& options) const {
  return Wait<absl::StatusOr<ServerInfo>>(*connection_, &Connection::GetServerInfo,
                                          Context(options, true));
}

absl::StatusOr<Health> Client::CheckHealth(std::string_view service,
                                           const CallOptions& options) const {
  return Wait<absl::StatusOr<Health>>(*connection_, &Connection::CheckHealth, std::string(service),
                                      Context(options, true));
}

}  // namespace phasor
