// SPDX-License-Identifier: Apache-2.0
// See infer_call.h. Shared memory is read after admission and written after the computation, both
// on the thread that computes: a client's memory is copied, at the speed of memory, and cannot make
// that thread wait.
#include "server/oip/infer_call.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "inference/grpc_service.pb.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/text.h"
#include "server/grpc/wire.h"
#include "server/oip/infer_response.h"
#include "server/oip/prepared_infer.h"

namespace phasor::oip {
namespace {

constexpr uint32_t kRawInputField = 7;  // ModelInferRequest.raw_input_contents

using Tick = std::chrono::steady_clock::time_point;
Tick Now() { return std::chrono::steady_clock::now(); }
absl::Duration Between(Tick from, Tick to) { return absl::FromChrono(to - from); }

class InferCall final : public engine::Call {
 public:
  InferCall(const InferContext& context, const InferCaller& caller,
            absl::AnyInvocable<void(InferAnswer)> done)
      : context_(context),
        client_(caller.client),
        cancelled_(caller.cancelled),
        stream_(caller.stream),
        quota_(caller.quota),
        memory_{{context.regions, caller.regions}, {context.devices, caller.regions}},
        done_(std::move(done)) {
    deadline = caller.deadline;
  }

  // Fills in the item. Errors as MayParse's and PrepareInfer's; INVALID_ARGUMENT: does not parse.
  absl::Status Receive(grpc::ByteBuffer* request) {
    PHASOR_RETURN_IF_ERROR(received_.Take(request));
    // A stream brings one request at a time, and the answer to each has the id that it must read.
    PHASOR_ASSIGN_OR_RETURN(const Permit while_read,
                            context_.engine->MayParse(stream_ ? 0 : received_.size(), deadline,
                                                      [this] { return cancelled(); }));
    PHASOR_ASSIGN_OR_RETURN(
        const WalkedMessage walked,
        received_.Walk({context_.max_header_bytes, kMaxTensors, kRawInputField}));
    inference::ModelInferRequest header;
    if (walked.header.size() > std::numeric_limits<int>::max() ||
        !header.ParseFromArray(walked.header.data(), static_cast<int>(walked.header.size()))) {
      return absl::InvalidArgumentError(
          "request: does not parse, must be an inference.ModelInferRequest");
    }
    prepared_.id = header.id();
    const std::shared_ptr<const ModelSet> models = context_.models->Get();
    prepared_.model = models->Find(header.model_name());
    const auto plans = [this](const ResolvedSpec& spec) { return context_.engine->GetPlan(spec); };
    PHASOR_ASSIGN_OR_RETURN(
        prepared_,
        PrepareInfer(header, walked.raw,
                     {models.get(), plans, context_.max_message_bytes, context_.tables, memory_}));
    items.push_back(std::move(prepared_.item));
    cost_bytes = received_.size() + prepared_.region_bytes + prepared_.output_bytes;
    other_bytes = prepared_.direct_bytes;
    deadline = std::min(deadline, absl::Now() + prepared_.timeout);
    PHASOR_ASSIGN_OR_RETURN(quota_permit_, quota_.Take(cost_bytes));
    ready_ = Now();
    return absl::OkStatus();
  }

  bool cancelled() const override { return cancelled_(); }
  uint64_t client() const override { return client_; }

  absl::Status FetchPayload() override {
    started_ = Now();
    for (size_t i = 0; i < prepared_.inputs.size(); ++i) {
      const InputTensor& input = prepared_.inputs[i];
      if (input.range.in_message() || input.direct || input.bytes == 0) continue;
      PHASOR_ASSIGN_OR_RETURN(*SegmentsOf(prepared_.roles[i], &items[0]), Fetch(input));
    }
    fetched_ = Now();
    return absl::OkStatus();
  }

  void ReleasePayload() override {
    received_.Release();
    copies_.clear();
  }

  void Done(absl::StatusOr<engine::Result> result) override {
    const Tick computed = Now();
    absl::Status status = result.status();
    if (status.ok()) status = result->items[0].status;
    if (status.ok()) {
      status = WriteRegions(*result);
      // One of its inputs may be changed already: the call cannot be made again.
      if (!status.ok() && prepared_.in_place) status = absl::AbortedError(status.message());
    }
    if (!status.ok()) return Fail(RenamePath(status, prepared_.paths));
    InferAnswer answer{absl::OkStatus(), MakeInferResponse(prepared_, *result, stream_),
                       prepared_.id, std::move(quota_permit_)};
    context_.statistics->AddSuccess(
        prepared_.model->name,
        {Between(ready_, started_), Between(arrived_, ready_) + Between(started_, fetched_),
         Between(fetched_, computed), Between(computed, Now())},
        absl::Now());
    done_(std::move(answer));
  }

  // Instead of Submit, for a request that is wrong.
  void Fail(absl::Status status) {
    if (prepared_.model != nullptr) {
      context_.statistics->AddFailure(prepared_.model->name, Between(arrived_, Now()));
    }
    done_({std::move(status), grpc::ByteBuffer(), prepared_.id});
  }

 private:
  // A copy of an input in shared memory.
  absl::StatusOr<engine::Segments> Fetch(const InputTensor& input) {
    std::unique_ptr<std::byte[]> copy(new (std::nothrow) std::byte[input.bytes]);
    if (copy == nullptr) {
      return absl::UnavailableError(
          StrCat("server: no memory for ", input.bytes, " bytes, try again"));
    }
    const RegionRange& range = input.range;
    PHASOR_RETURN_IF_ERROR(
        range.device != nullptr
            ? range.device->Read(range.offset, input.bytes, copy.get())
            : range.region->Read(range.offset, input.bytes, copy.get(), input.path));
    copies_.push_back(std::move(copy));
    return engine::Segments{{copies_.back().get(), static_cast<size_t>(input.bytes)}};
  }

  absl::Status WriteRegions(const engine::Result& result) {
    for (const OutputTensor& output : prepared_.outputs) {
      const RegionRange& to = output.range;
      if (to.in_message() || output.direct) continue;
      const engine::OutputRange& from = result.items[0].outputs[output.index];
      const std::byte* const data = result.buffer->data() + from.offset;
      PHASOR_RETURN_IF_ERROR(to.device != nullptr
                                 ? to.device->Write(to.offset, from.bytes, data)
                                 : to.region->Write(to.offset, from.bytes, data, output.path));
    }
    return absl::OkStatus();
  }

  const InferContext context_;
  const uint64_t client_;
  const std::function<bool()> cancelled_;
  const bool stream_;
  const rpc::CallerQuota quota_;
  const NamedMemory memory_;
  Permit quota_permit_;
  absl::AnyInvocable<void(InferAnswer)> done_;
  rpc::ReceivedMessage received_;
  PreparedInfer prepared_;  // its item is in `items`
  std::vector<std::unique_ptr<std::byte[]>> copies_;

  const Tick arrived_ = Now();
  Tick ready_;    // parsed and checked
  Tick started_;  // taken from the queue
  Tick fetched_;  // all payload is here
};

}  // namespace

void StartInfer(const InferContext& context, grpc::ByteBuffer* request, const InferCaller& caller,
                absl::AnyInvocable<void(InferAnswer)> done) {
  auto call = std::make_unique<InferCall>(context, caller, std::move(done));
  if (absl::Status status = call->Receive(request); !status.ok()) {
    call->Fail(std::move(status));
    return;
  }
  context.engine->Submit(std::move(call));
}

}  // namespace phasor::oip
