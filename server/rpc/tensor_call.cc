// SPDX-License-Identifier: Apache-2.0
// See tensor_call.h.
//
// Lifetimes: gRPC calls the reactor until OnDone, the engine uses the call until Done has returned,
// and either may be last. The reactor is therefore shared: gRPC's share is dropped in OnDone, the
// call's when the engine destroys it. `context` and `response` live until OnDone, which cannot come
// before Done has finished the RPC.
#include "server/rpc/tensor_call.h"

#include <grpcpp/server_context.h>

#include <atomic>
#include <memory>
#include <utility>

#include "kernels/status_macros.h"
#include "proto/grpc_status.h"
#include "server/engine/plan_budget.h"
#include "server/rpc/access.h"
#include "server/rpc/call_counter.h"
#include "server/rpc/caller.h"
#include "server/rpc/wire.h"

namespace phasor::rpc {
namespace {

// The items of a batch may have this many raw entries on average.
constexpr int64_t kRawEntriesPerBatchItem = 8;

// Owns itself until OnDone.
class Reactor final : public grpc::ServerUnaryReactor {
 public:
  static std::shared_ptr<Reactor> Make() {
    auto reactor = std::make_shared<Reactor>();
    reactor->self_ = reactor;
    return reactor;
  }

  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  engine::Permit quota_permit;  // until the answer has been sent

 private:
  void OnCancel() override { cancelled_.store(true, std::memory_order_relaxed); }
  void OnDone() override { std::shared_ptr<Reactor>(std::move(self_)).reset(); }

  std::atomic<bool> cancelled_ = false;
  std::shared_ptr<Reactor> self_;
};

class TensorCall final : public engine::Call {
 public:
  TensorCall(const TensorMethod& method, std::string backend, grpc::CallbackServerContext* context,
             grpc::ByteBuffer* response, std::shared_ptr<Reactor> reactor)
      : method_(method),
        backend_(std::move(backend)),
        context_(context),
        response_(response),
        reactor_(std::move(reactor)) {
    batch = method.batch;
    deadline = DeadlineOf(*context);
  }

  // Fills in the items. Errors as those of the method's parse function.
  absl::Status Receive(grpc::ByteBuffer* request, const TensorCallLimits& limits,
                       engine::Engine& engine) {
    PHASOR_RETURN_IF_ERROR(received_.Take(request));
    const WalkLimits walk_limits{
        limits.max_header_bytes,
        kRawEntriesOfOneItem + (batch ? kRawEntriesPerBatchItem * limits.max_batch_items : 0)};
    PHASOR_ASSIGN_OR_RETURN(const WalkedMessage walked, received_.Walk(walk_limits));
    engine::PlanBudget budget;
    const auto cached = [&engine](const ResolvedSpec& spec) { return engine.GetPlan(spec); };
    const auto plans = [&](const ResolvedSpec& spec) { return budget.Get(spec, cached); };
    const ViewContext view_context{plans,
                                   backend_,
                                   limits.max_message_bytes,
                                   limits.max_batch_items,
                                   limits.tables,
                                   SharedSourcesOf(limits, *context_),
                                   limits.encoders};
    PHASOR_ASSIGN_OR_RETURN(RequestView view, method_.parse(walked, view_context));
    items = std::move(view.items);
    cost_bytes = received_.size() + view.response_bytes + view.copied_bytes;
    held = std::move(view.held);
    copies_ = std::move(view.copies);
    other_bytes = view.shared_bytes;
    PHASOR_ASSIGN_OR_RETURN(reactor_->quota_permit, CallerQuota(*context_).Take(cost_bytes));
    return absl::OkStatus();
  }

  bool cancelled() const override { return reactor_->cancelled(); }
  uint64_t client() const override { return ClientOf(*context_); }

  absl::Status FetchPayload() override {
    if (copies_ != nullptr) copies_->Fetch(absl::MakeSpan(items));
    return absl::OkStatus();
  }

  void ReleasePayload() override { received_.Release(); }

  void Done(absl::StatusOr<engine::Result> result) override {
    if (result.ok() && copies_ != nullptr) copies_->Store(absl::MakeSpan(result->items));
    absl::Status status = result.status();
    if (status.ok() && !batch) status = result->items[0].status;
    if (status.ok()) *response_ = method_.respond(items, *result);
    FinishCall(context_, reactor_.get(), status);
  }

 private:
  const TensorMethod& method_;
  const std::string backend_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const std::shared_ptr<Reactor> reactor_;
  ReceivedMessage received_;
  std::unique_ptr<RegionCopies> copies_;  // nullptr: it names no regions
};

}  // namespace

SharedSources SharedSourcesOf(const TensorCallLimits& limits,
                              const grpc::CallbackServerContext& context) {
  // Who calls is looked up only where names are told apart by it.
  const bool has_names = limits.regions != nullptr && limits.regions->enabled();
  if (!has_names) return {limits.leases};
  const regions::RegionCaller caller = RegionCallerOf(context);
  return {limits.leases, {limits.regions, caller}, {limits.devices, caller}};
}

void FinishCall(grpc::CallbackServerContext* context, grpc::ServerUnaryReactor* reactor,
                const absl::Status& status) {
  if (absl::IsUnavailable(status)) context->AddTrailingMetadata("grpc-retry-pushback-ms", "100");
  reactor->Finish(ToGrpcStatus(status));
}

grpc::ServerUnaryReactor* RefusedReactor(grpc::CallbackServerContext* context) {
  const absl::Status refusal = Refusal(context);
  if (refusal.ok()) return nullptr;
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  FinishCall(context, reactor, refusal);
  return reactor;
}

grpc::ServerUnaryReactor* StartTensorCall(const TensorMethod& method,
                                          const TensorCallLimits& limits, engine::Engine& engine,
                                          grpc::CallbackServerContext* context,
                                          grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  std::shared_ptr<Reactor> reactor = Reactor::Make();
  CallCounter::NoteReceived(context, static_cast<int64_t>(request->Length()));
  if (absl::Status refusal = Refusal(context); !refusal.ok()) {
    FinishCall(context, reactor.get(), refusal);
    return reactor.get();
  }
  auto call = std::make_unique<TensorCall>(method, std::string(engine.backend()->name()), context,
                                           response, reactor);
  if (absl::Status status = call->Receive(request, limits, engine); !status.ok()) {
    FinishCall(context, reactor.get(), status);
  } else {
    engine.Submit(std::move(call));
  }
  return reactor.get();
}

}  // namespace phasor::rpc
