// SPDX-License-Identifier: Apache-2.0
// Runs inferences: parses, checks, submits to the engine, answers, and measures each step. Device
// memory that is copied is read after admission and written after the computation, both on the
// thread that computes.
#include "server/oip/infer_call.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/time/clock.h"
#include "inference/grpc_service.pb.h"
#include "kernels/base/invalid.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "server/engine/plan_budget.h"
#include "server/grpc/wire.h"
#include "server/oip/infer_response.h"
#include "server/oip/prepared_infer.h"

namespace phasor::oip {
namespace {

constexpr uint32_t kRawInputField = 7;  // ModelInferRequest.raw_input_contents

using Tick = std::chrono::steady_clock::time_point;
Tick Now() { return std::chrono::steady_clock::now(); }
absl::Duration Between(Tick from, Tick to) { return absl::FromChrono(to - from); }

// One inference. Holds the received bytes and the item until the engine destroys it. Threads: as
// engine::Call.
class InferCall final : public engine::Call {
 public:
  InferCall(const InferContext& context, const InferCaller& caller,
            absl::AnyInvocable<void(InferAnswer)> done)
      : context_(context),
        client_(caller.client),
        cancelled_(caller.cancelled),
        stream_(caller.stream),
        quota_(caller.quota),
        memory_{context.memory, caller.regions},
        done_(std::move(done)) {
    deadline = caller.deadline;
    waits_for_room = stream_;
  }

  // Takes the request. Errors: as MayParse.
  absl::Status Receive(grpc::ByteBuffer* request) {
    PHASOR_RETURN_IF_ERROR(received_.Take(request));
    received_bytes = received_.size();
    // A request of a stream is parsed without waiting for room: a stream brings one request at a
    // time, and its answer needs the id that only parsing gives.
    PHASOR_ASSIGN_OR_RETURN(while_read_,
                            context_.engine->MayParse(stream_ ? 0 : received_.size(), deadline,
                                                      [this] { return cancelled(); }));
    return absl::OkStatus();
  }

  // Parses the request into an item. Errors: as PrepareInfer; INVALID_ARGUMENT: it does not parse.
  absl::Status Prepare(const TableSource* tables) {
    PHASOR_ASSIGN_OR_RETURN(
        const WalkedMessage walked,
        received_.Walk({context_.max_header_bytes, kMaxTensors, kRawInputField}));
    inference::ModelInferRequest header;
    if (walked.header.size() > std::numeric_limits<int>::max() ||
        !header.ParseFromArray(walked.header.data(), static_cast<int>(walked.header.size()))) {
      return Invalid("request: does not parse; must be an inference.ModelInferRequest");
    }
    prepared_.id = header.id();
    const std::shared_ptr<const ModelSet> models = context_.models->Get();
    prepared_.model = models->Find(header.model_name());
    engine::PlanBudget budget;
    const auto cached = [this](const ResolvedSpec& spec) { return context_.engine->GetPlan(spec); };
    const auto plans = [&](const ResolvedSpec& spec) { return budget.Get(spec, cached); };
    PHASOR_ASSIGN_OR_RETURN(prepared_, PrepareInfer(header, walked.raw,
                                                    {models.get(), plans,
                                                     context_.max_message_bytes, tables, memory_}));
    items.push_back(std::move(prepared_.item));
    cost_bytes = received_.size() + prepared_.server_bytes + budget.large_bytes();
    other_bytes = prepared_.bound.shared_bytes;
    held = std::move(prepared_.bound.held);
    deadline = std::min(deadline, SteadyNow() + prepared_.timeout);
    PHASOR_ASSIGN_OR_RETURN(quota_permit_, quota_.Take(cost_bytes));
    while_read_ = Permit();
    ready_ = phases.submitted = Now();
    return absl::OkStatus();
  }

  bool cancelled() const override { return cancelled_(); }
  uint64_t client() const override { return client_; }

  absl::Status FetchPayload(engine::BufferPool& pool) override {
    started_ = Now();
    const auto& transfers = prepared_.bound.transfers;
    if (transfers != nullptr) {
      PHASOR_RETURN_IF_ERROR(transfers->Fetch(pool, absl::MakeSpan(items)));
    }
    fetched_ = Now();
    return absl::OkStatus();
  }

  void ReleasePayload() override {
    received_.Release();
    if (prepared_.bound.transfers != nullptr) prepared_.bound.transfers->Release();
  }

  void Done(absl::StatusOr<engine::Result> result) override {
    const Tick computed = Now();
    if (result.ok() && prepared_.bound.transfers != nullptr) {
      prepared_.bound.transfers->Store(*result);
      phases.stored = Now();
    }
    const absl::Status status = result.ok() ? result->items[0].status : result.status();
    if (!status.ok()) return Fail(RenamePath(status, prepared_.paths));
    InferAnswer answer{absl::OkStatus(), MakeInferResponse(prepared_, *result, stream_),
                       prepared_.id, std::move(quota_permit_), phases};
    context_.statistics->AddSuccess(
        prepared_.model->name,
        {Between(ready_, started_), Between(arrived_, ready_) + Between(started_, fetched_),
         Between(fetched_, computed), Between(computed, Now())},
        absl::Now());
    done_(std::move(answer));
  }

  // Answers with an error. Called instead of Submit if the request is wrong.
  void Fail(absl::Status status) {
    while_read_ = Permit();
    if (prepared_.model != nullptr) {
      context_.statistics->AddFailure(prepared_.model->name, Between(arrived_, Now()));
    }
    done_({std::move(status), grpc::ByteBuffer(), prepared_.id});
  }

 private:
  const InferContext context_;
  const uint64_t client_;
  const std::function<bool()> cancelled_;
  const bool stream_;
  const rpc::CallerQuota quota_;
  const memory::CallerMemory memory_;
  Permit while_read_;  // until the request is parsed
  Permit quota_permit_;
  absl::AnyInvocable<void(InferAnswer)> done_;
  rpc::ReceivedMessage received_;
  PreparedInfer prepared_;  // its item has moved to `items`

  const Tick arrived_ = Now();
  Tick ready_;    // when it was parsed and checked
  Tick started_;  // when it was taken from the queue
  Tick fetched_;  // when all payload had been read
};

// Computes a request that was prepared, or answers with the error.
void Begin(std::unique_ptr<InferCall> call, absl::Status status, engine::Engine& engine) {
  if (!status.ok()) return call->Fail(std::move(status));
  engine.Submit(std::move(call));
}

// The same for a request that needs a table which is not in memory. Blocks while it is read.
void BeginLater(std::unique_ptr<InferCall> call, const InferContext& context) {
  if (call->cancelled()) return call->Fail(absl::CancelledError("table: nobody waits for it"));
  absl::Status status = call->Prepare(context.tables);
  Begin(std::move(call), std::move(status), *context.engine);
}

}  // namespace

void StartInfer(const InferContext& context, grpc::ByteBuffer* request, const InferCaller& caller,
                absl::AnyInvocable<void(InferAnswer)> done) {
  auto call = std::make_unique<InferCall>(context, caller, std::move(done));
  absl::Status status = call->Receive(request);
  if (!status.ok()) return call->Fail(std::move(status));
  const tables::LoadedTables loaded(context.tables);
  status = call->Prepare(&loaded);
  if (!loaded.lacks_a_table()) return Begin(std::move(call), std::move(status), *context.engine);
  context.table_reads->Post(caller.client, [context, call = std::move(call)]() mutable {
    BeginLater(std::move(call), context);
  });
}

}  // namespace phasor::oip
