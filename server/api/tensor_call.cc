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
#include "proto/grpc_status.h"
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

  // Parses the message into items. Errors: as MayParse and the method's parse function.
  absl::Status Receive(grpc::ByteBuffer* request, const TensorCallLimits& limits,
                       engine::Engine& engine) {
    PHASOR_RETURN_IF_ERROR(received_.Take(request));
    PHASOR_ASSIGN_OR_RETURN(
        const Permit while_read,
        engine.MayParse(received_.size(), deadline, [this] { return cancelled(); }));
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
                                   limits.tables,
                                   CallerMemoryOf(limits.memory, *context_),
                                   limits.encoders,
                                   limits.memo};
    PHASOR_ASSIGN_OR_RETURN(RequestView view, method_.parse(walked, view_context));
    engine.CountPlanHits(view.recalled_items);
    items = std::move(view.items);
    cost_bytes = received_.size() + view.response_bytes + view.copied_bytes + budget.large_bytes();
    held = std::move(view.bound.held);
    transfers_ = std::move(view.bound.transfers);
    other_bytes = view.bound.shared_bytes;
    PHASOR_ASSIGN_OR_RETURN(Permit quota, CallerQuota(*context_).Take(cost_bytes));
    KeepUntilSent(context_, std::move(quota));
    return absl::OkStatus();
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
  std::unique_ptr<memory::Transfers> transfers_;  // nullptr: nothing to do
};

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
  if (absl::Status status = call->Receive(request, limits, engine); !status.ok()) {
    FinishCall(context, reactor, status);
  } else {
    call->phases.submitted = std::chrono::steady_clock::now();
    engine.Submit(std::move(call));
  }
  return reactor;
}

}  // namespace phasor::rpc
