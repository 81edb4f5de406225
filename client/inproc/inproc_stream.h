// SPDX-License-Identifier: Apache-2.0
// Streams of the target "inproc:". Write stores a call, and Read computes it.
#ifndef PHASOR_CLIENT_INPROC_INPROC_STREAM_H_
#define PHASOR_CLIENT_INPROC_INPROC_STREAM_H_

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/common/calls.h"
#include "client/connection.h"
#include "kernels/base/invalid.h"
#include "kernels/base/steady_time.h"

namespace phasor::client_internal {

// CANCELLED or DEADLINE_EXCEEDED if the context is cancelled or past its deadline.
inline absl::Status CheckContext(const CallContext& context) {
  if (context.cancel.has_value() && context.cancel->cancelled()) {
    return absl::CancelledError("call: cancelled");
  }
  if (SteadyNow() >= context.deadline) {
    return absl::DeadlineExceededError("call: deadline passed; allow more time");
  }
  return absl::OkStatus();
}

// A stream that computes calls in the order in which they were written. Threads: as ItemStream.
template <typename Call, typename Result>
class InprocStream final : public ItemStream<Call, Result> {
 public:
  using Run = std::function<absl::StatusOr<Result>(const Call&)>;
  using Answer = StreamAnswer<Result>;

  InprocStream(Run run, CallContext context) : run_(std::move(run)), context_(std::move(context)) {
    if (!context_.cancel.has_value()) return;
    cancel_ = context_.cancel->OnCancel([changed = changed_] { changed->Notify(); });
  }

  bool WaitToWrite() override { return true; }

  absl::Status Write(int64_t id, Call call) override {
    const auto request = ToRequest(call, kItemPath);
    if (!request.ok()) return request.status();
    std::lock_guard lock(changed_->mutex);
    if (writes_done_ || !CheckContext(context_).ok()) {
      return absl::FailedPreconditionError("stream: has ended; Finish says why");
    }
    if (!ids_.insert(id).second) {
      return Invalid("id: ", id, " is not answered yet; must be another until then");
    }
    calls_.emplace_back(id, std::move(call));
    changed_->condition.notify_all();
    return absl::OkStatus();
  }

  std::optional<Answer> Read() override {
    std::optional<std::pair<int64_t, Call>> next = Next();
    if (!next.has_value()) return std::nullopt;
    Answer answer{next->first, run_(next->second)};
    std::lock_guard lock(changed_->mutex);
    ids_.erase(answer.id);
    EndIfDone();
    return answer;
  }

  void WritesDone() override {
    std::lock_guard lock(changed_->mutex);
    writes_done_ = true;
    EndIfDone();
    changed_->condition.notify_all();
  }

  absl::Status Finish() override {
    WritesDone();
    while (Read().has_value()) {
    }
    std::lock_guard lock(changed_->mutex);
    return end_.has_value() ? *end_ : CheckContext(context_);
  }

 private:
  // State that the cancel hook shares: the hook may still run after the stream is destroyed.
  struct Changed {
    void Notify() {
      std::lock_guard lock(mutex);
      condition.notify_all();
    }
    std::mutex mutex;
    std::condition_variable condition;
  };

  // Keeps how the stream ended, once all calls are answered. The caller must hold the lock.
  void EndIfDone() {
    if (writes_done_ && ids_.empty() && !end_.has_value()) end_ = CheckContext(context_);
  }

  // Waits for the next call. nullopt: no more calls will come.
  std::optional<std::pair<int64_t, Call>> Next() {
    std::unique_lock lock(changed_->mutex);
    while (calls_.empty() && !writes_done_ && CheckContext(context_).ok()) {
      const absl::Duration left = std::min(context_.deadline - SteadyNow(), absl::Hours(24));
      changed_->condition.wait_for(lock, absl::ToChronoNanoseconds(left));
    }
    if (calls_.empty() || !CheckContext(context_).ok()) return std::nullopt;
    std::pair<int64_t, Call> next = std::move(calls_.front());
    calls_.pop_front();
    return next;
  }

  const Run run_;
  const CallContext context_;
  const std::shared_ptr<Changed> changed_ = std::make_shared<Changed>();
  // Guarded by changed_->mutex.
  std::deque<std::pair<int64_t, Call>> calls_;
  std::set<int64_t> ids_;
  bool writes_done_ = false;
  std::optional<absl::Status> end_;
  CancelToken::Registration cancel_;
};

}  // namespace phasor::client_internal

#endif  // PHASOR_CLIENT_INPROC_INPROC_STREAM_H_
