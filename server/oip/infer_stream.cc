// SPDX-License-Identifier: Apache-2.0
// Runs the streams of ModelStreamInfer. One lock guards the state of all streams. It is not held
// while a request is started, because the answer may come inside StartInfer. gRPC runs reactions on
// its own threads, never inside the calls that start an operation, so it is safe to start one under
// the lock.
#include "server/oip/infer_stream.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/grpc/access.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/caller.h"
#include "server/grpc/finish_call.h"
#include "server/grpc/idle_timer.h"
#include "server/oip/infer_response.h"

namespace phasor::oip {
namespace {

bool WantsGrpcErrors(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find("triton_grpc_error");
  return found != context.client_metadata().end() && found->second == "true";
}

}  // namespace

// The reactor of one stream. Owns itself from Begin until OnDone.
class InferStreams::Stream final : public InferStreamReactor,
                                   public std::enable_shared_from_this<Stream> {
 public:
  Stream(InferStreams* streams, grpc::CallbackServerContext* context)
      : streams_(*streams),
        mu_(streams->mu_),
        context_(context),
        client_(rpc::ClientOf(*context)),
        quota_(*context),
        regions_(rpc::RegionCallerOf(*context)),
        observer_(rpc::CallCounter::ObserverOf(context)),
        grpc_errors_(WantsGrpcErrors(*context)) {}

  void Begin(const absl::Status& refusal) {
    self_ = shared_from_this();
    timer_.emplace(streams_.idle_timeout_, [weak = weak_from_this()] {
      const std::shared_ptr<Stream> stream = weak.lock();
      return stream == nullptr || stream->EndIfQuiet();
    });
    absl::MutexLock lock(mu_.get());
    streams_.streams_.insert(this);
    refusal.ok() ? Next() : End(refusal);
  }

  // Reads the next request, unless the stream must end.
  void Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(*mu_) {
    busy_ = false;
    if (streams_.ending_) return End(rpc::Draining());
    StartRead(&request_);
  }

  void EndIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(*mu_) {
    if (!busy_) End(rpc::Draining());
  }

  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(*mu_) {
    if (std::exchange(finished_, true)) return;
    rpc::FinishStream(context_, this, status);
  }

 private:
  bool EndIfQuiet() {
    absl::MutexLock lock(mu_.get());
    if (finished_) return true;
    if (busy_) return false;  // OpenCalls ends it if the caller takes no answers
    End(absl::DeadlineExceededError(
        absl::StrCat("stream: nothing received for ", absl::FormatDuration(streams_.idle_timeout_),
                     "; send earlier, or ask for a larger --stream-idle-timeout")));
    return true;
  }

  void OnReadDone(bool ok) override {
    timer_->Touch();
    {
      absl::MutexLock lock(mu_.get());
      if (finished_) return;
      if (!ok) return End(absl::OkStatus());  // the caller sends no more
      busy_ = true;
    }
    message_.received = std::chrono::steady_clock::now();
    message_.received_bytes = static_cast<int64_t>(request_.Length());
    rpc::CallCounter::NoteMessage(context_, message_.received_bytes);
    StartInfer(streams_.context_, &request_,
               {absl::InfiniteFuture(), client_,
                [cancelled = cancelled_] { return cancelled->load(std::memory_order_relaxed); },
                /*stream=*/true, quota_, regions_},
               [this](InferAnswer answer) { Answer(std::move(answer)); });
  }

  void Answer(InferAnswer answer) {
    absl::MutexLock lock(mu_.get());
    const bool ends = !answer.status.ok() && grpc_errors_;
    quota_permit_ = std::move(answer.quota_permit);
    if (answer.status.ok()) {
      response_ = std::move(answer.response);
    } else if (!ends) {
      response_ = MakeStreamError(answer.status, answer.id);
    }
    message_.code = static_cast<int>(answer.status.code());
    message_.sent_bytes = static_cast<int64_t>(response_.Length());
    message_.phases = answer.phases;
    if (observer_ != nullptr) observer_->Answered(message_);
    if (ends) return End(answer.status);
    rpc::CallCounter::NoteAnswer(context_, message_.sent_bytes);
    StartWrite(&response_);
  }

  void OnWriteDone(bool ok) override {
    timer_->Touch();
    absl::MutexLock lock(mu_.get());
    rpc::CallCounter::NoteAnswerTaken(context_);
    response_.Clear();  // frees its memory for other calls
    quota_permit_ = Permit();
    if (!ok) return End(absl::CancelledError("server: cancelled by the caller"));
    Next();
  }

  void OnCancel() override { cancelled_->store(true, std::memory_order_relaxed); }

  void OnDone() override {
    {
      absl::MutexLock lock(mu_.get());
      streams_.streams_.erase(this);
    }
    std::shared_ptr<Stream>().swap(self_);
  }

  InferStreams& streams_;  // outlives the call, but not the timer's last run
  const std::shared_ptr<absl::Mutex> mu_;
  std::shared_ptr<Stream> self_;
  std::optional<rpc::IdleTimer> timer_;
  grpc::CallbackServerContext* const context_;
  const uint64_t client_;
  const rpc::CallerQuota quota_;
  const memory::RegionCaller regions_;
  const std::shared_ptr<rpc::StreamObserver> observer_;  // nullptr: nobody hears of requests
  const bool grpc_errors_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  rpc::MessageRecord message_;  // the request that is under way
  Permit quota_permit_;         // of the answer that is being sent
  // A request is under way; guarded by `mu_`, like the next member.
  bool busy_ = false;
  bool finished_ = false;
};

InferStreamReactor* InferStreams::Start(grpc::CallbackServerContext* context) {
  const absl::Status refusal = rpc::Refusal(context);
  const auto stream = std::make_shared<Stream>(this, context);
  stream->Begin(refusal);
  return stream.get();
}

void InferStreams::End() {
  absl::MutexLock lock(mu_.get());
  ending_ = true;
  for (Stream* stream : streams_) stream->EndIfIdle();
}

}  // namespace phasor::oip
