// SPDX-License-Identifier: Apache-2.0
// Runs unary tensor calls: receives the bytes, submits to the engine, writes the response.
//
// Lifetimes: `context`, `response` and the reactor live until Done has finished the RPC. The call
// itself may be destroyed later and does not touch them then.
//
// The reactor is the context's default one, which has no reactions. With a reactor of our own, gRPC
// would run reactions of every call on another thread, which costs more than a small call.
#include "server/api/tensor_call.h"

#include <grpcpp/server_context.h>

#include <chrono>
#include <memory>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/engine/plan_budget.h"
#include "server/grpc/access.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/caller.h"
#include "server/grpc/finish_call.h"
#include "server/grpc/wire.h"

namespace phasor::rpc {
namespace {

// Most raw entries per item of a batch, on average.
constexpr int64_t kRawEntriesPerBatchItem = 8;

// A unary tensor call. Holds the received bytes and the items until the engine destroys it.
// Threads: as engine::Call.
class TensorCall final : public engine::Call {
 public:
  TensorCall(const TensorMethod& method, std::string backend, grpc::CallbackServerContext* context,
             grpc::ServerUnaryReactor* reactor, grpc::ByteBuffer* response)
      : method_(method),
        backend_(std::move(backend)),
        context_(context),
        reactor_(reactor),
        response_(response) {
    batch = method.batch;
    deadline = DeadlineOf(*context);
  }

  // Takes the message. Errors: as MayParse.
  absl::Status Receive(grpc::ByteBuffer* request, engine::Engine& engine) {
    PHASOR_RETURN_IF_ERROR(received_.Take(request));
    PHASOR_ASSIGN_OR_RETURN(
        while_read_, engine.MayParse(received_.size(), deadline, [this] { return cancelled(); }));
    return absl::OkStatus();
  }

  // Parses the message. Errors: as the method's parse function.
  absl::StatusOr<RequestView> Parse(const TensorCallLimits& limits, const TableSource* tables,
                                    engine::Engine& engine) {
    const WalkLimits walk_limits{
        limits.max_header_bytes,
        method_.raw_entries + (batch ? kRawEntriesPerBatchItem * limits.max_batch_items : 0)};
    PHASOR_ASSIGN_OR_RETURN(const WalkedMessage walked, received_.Walk(walk_limits));
    engine::PlanBudget budget;
    const auto cached = [&engine](const ResolvedSpec& spec) { return engine.GetPlan(spec); };
    const auto plans = [&](const ResolvedSpec& spec) { return budget.Get(spec, cached); };
    const ViewContext view_context{plans,
                                   backend_,
                                   limits.max_message_bytes,
                                   limits.max_batch_items,
                                   tables,
                                   CallerMemoryOf(limits.memory, *context_),
                                   limits.encoders,
                                   limits.memo};
    auto view = method_.parse(walked, view_context);
    plan_bytes_ = budget.large_bytes();
    return view;
  }

  // Takes the items of the message. Errors: as CallerQuota::Take.
  absl::Status Take(RequestView view, engine::Engine& engine) {
    while_read_ = Permit();
    engine.CountPlanHits(view.recalled_items);
    items = std::move(view.items);
    cost_bytes = received_.size() + view.response_bytes + view.copied_bytes + plan_bytes_;
    held = std::move(view.bound.held);
    transfers_ = std::move(view.bound.transfers);
    other_bytes = view.bound.shared_bytes;
    PHASOR_ASSIGN_OR_RETURN(Permit quota, CallerQuota(*context_).Take(cost_bytes));
    KeepUntilSent(context_, std::move(quota));
    return absl::OkStatus();
  }

  // Ends the call before it was submitted.
  void Fail(const absl::Status& status) {
    while_read_ = Permit();
    FinishCall(context_, reactor_, status);
  }

  bool cancelled() const override { return context_->IsCancelled(); }
  uint64_t client() const override { return ClientOf(*context_); }

  absl::Status FetchPayload(engine::BufferPool& pool) override {
    if (transfers_ == nullptr) return absl::OkStatus();
    return transfers_->Fetch(pool, absl::MakeSpan(items));
  }

  void ReleasePayload() override {
    received_.Release();
    if (transfers_ != nullptr) transfers_->Release();
  }

  void Done(absl::StatusOr<engine::Result> result) override {
    if (result.ok() && transfers_ != nullptr) {
      transfers_->Store(*result);
      phases.stored = std::chrono::steady_clock::now();
    }
    CallCounter::NotePhases(context_, phases);
    absl::Status status = result.status();
    if (status.ok() && !batch) status = result->items[0].status;
    if (status.ok()) {
      grpc::ByteBuffer response = method_.respond(items, *result);
      response_->Swap(&response);  // assigning would copy the list of slices
    }
    FinishCall(context_, reactor_, status, response_->Length());
  }

 private:
  const TensorMethod& method_;
  const std::string backend_;
  grpc::CallbackServerContext* const context_;
  grpc::ServerUnaryReactor* const reactor_;
  grpc::ByteBuffer* const response_;
  ReceivedMessage received_;
  Permit while_read_;                             // until the message is parsed
  int64_t plan_bytes_ = 0;                        // of large plans of this message
  std::unique_ptr<memory::Transfers> transfers_;  // nullptr: nothing to do
};

// Computes a parsed call, or ends it with the error.
void Begin(std::unique_ptr<TensorCall> call, absl::StatusOr<RequestView> view,
           engine::Engine& engine) {
  const absl::Status status = view.ok() ? call->Take(*std::move(view), engine) : view.status();
  if (!status.ok()) return call->Fail(status);
  call->phases.submitted = std::chrono::steady_clock::now();
  engine.Submit(std::move(call));
}

// The same for a call that needs a table which is not in memory. Blocks while it is read.
void BeginLater(std::unique_ptr<TensorCall> call, const TensorCallLimits& limits,
                engine::Engine& engine) {
  if (call->cancelled()) return call->Fail(absl::CancelledError("table: nobody waits for it"));
  auto view = call->Parse(limits, limits.tables, engine);
  Begin(std::move(call), std::move(view), engine);
}

}  // namespace

memory::CallerMemory CallerMemoryOf(const memory::Stores& stores,
                                    const grpc::CallbackServerContext& context) {
  memory::CallerMemory memory{stores, {}};
  if (stores.has_regions()) memory.caller = RegionCallerOf(context);
  return memory;
}

grpc::ServerUnaryReactor* StartTensorCall(const TensorMethod& method,
                                          const TensorCallLimits& limits, engine::Engine& engine,
                                          grpc::CallbackServerContext* context,
                                          grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  CallCounter::NoteReceived(context, static_cast<int64_t>(request->Length()));
  if (auto* const refused = RefusedReactor(context)) return refused;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  auto call = std::make_unique<TensorCall>(method, std::string(engine.backend()->name()), context,
                                           reactor, response);
  if (absl::Status status = call->Receive(request, engine); !status.ok()) {
    call->Fail(status);
    return reactor;
  }
  const tables::LoadedTables loaded(limits.tables);
  auto view = call->Parse(limits, &loaded, engine);
  if (loaded.lacks_a_table()) {
    limits.table_reads->Post(ClientOf(*context),
                             [limits, &engine, call = std::move(call)]() mutable {
                               BeginLater(std::move(call), limits, engine);
                             });
  } else {
    Begin(std::move(call), std::move(view), engine);
  }
  return reactor;
}

}  // namespace phasor::rpc
