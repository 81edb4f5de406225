// SPDX-License-Identifier: Apache-2.0
// See raw_stream.h. gRPC moves the bytes on its own threads, so that one side's waiting never stops
// the other.
#include "client/grpc/raw_stream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/time/time.h"
#include "client/grpc/callback_threads.h"
#include "client/grpc/caller_queue.h"
#include "client/grpc/forked.h"
#include "client/grpc/grpc_channel.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "proto/grpc_status.h"

namespace phasor::client_internal {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point GiveUpAt(absl::Time deadline) {
  constexpr absl::Duration kForever = absl::Hours(24 * 365);
  const absl::Duration left = deadline - SteadyNow();
  if (left > kForever) return Clock::time_point::max();
  return Clock::now() + absl::ToChronoNanoseconds(left + kGraceOfDeadline);
}

// Messages that wait: for gRPC to send them, or for the caller to read them.
class Queue {
 public:
  size_t size() const { return messages_.size(); }
  // Whether no more should be added. One message fits, however large.
  bool full() const { return bytes_ >= kMostBytes; }
  grpc::ByteBuffer* front() { return &messages_.front(); }
  // Takes what `message` holds.
  void Push(grpc::ByteBuffer* message) {
    bytes_ += kBytesBeside + message->Length();
    messages_.emplace_back().Swap(message);
  }
  grpc::ByteBuffer Pop() {
    grpc::ByteBuffer message;
    message.Swap(&messages_.front());
    messages_.pop_front();
    bytes_ -= kBytesBeside + message.Length();
    return message;
  }

 private:
  static constexpr size_t kMostBytes = 64 << 10;
  static constexpr size_t kBytesBeside = 64;  // so that empty messages are not without number
  std::deque<grpc::ByteBuffer> messages_;
  size_t bytes_ = 0;
};

}  // namespace

// Shared with the hook that cancels it. gRPC uses it until OnDone, for which the destructor of
// RawStream waits.
class RawStream::Reactor final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Reactor(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
          const CallContext& context)
      : stub_(channel),
        refused_(CheckMetadata(context.metadata)),
        interrupted_(context.interrupted),
        give_up_at_(GiveUpAt(context.deadline)) {
    if (refused_.ok()) {
      SetUp(context, context_.get());
    } else {
      context_->TryCancel();
      writes_ended_ = true;
    }
    KeepCallbackThreads();
    stub_.PrepareBidiStreamingCall(context_.get(), method, {}, this);
    AddHold();  // operations start outside of reactions
    StartRead(&incoming_);
    StartCall();
  }

  void SetCancel(CancelToken::Registration cancel) { cancel_ = std::move(cancel); }
  void Cancel() {
    std::lock_guard lock(context_mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

  bool WaitToWrite() {
    std::unique_lock lock(mutex_);
    WaitUntil([this] { return !outgoing_.full() || received_.size() > 0 || writes_ended_; }, lock);
    return !outgoing_.full() || writes_ended_ || given_up_;
  }

  Loan NewLoan() const { return loan_.Part(); }

  bool Write(const std::string& header, absl::Span<const absl::Span<const std::byte>> raw,
             Loan loan) {
    grpc::ByteBuffer message = WriteRawMessage(header, raw, loan);
    const grpc::ByteBuffer* first = nullptr;
    {
      std::unique_lock lock(mutex_);
      WaitUntil([this] { return !outgoing_.full() || writes_ended_; }, lock);
      if (writes_ended_ || reads_ended_ || given_up_) return false;
      outgoing_.Push(&message);
      if (outgoing_.size() > 1) return true;  // OnWriteDone starts it
      first = outgoing_.front();
    }
    StartWrite(first);
    return true;
  }

  bool WaitForReturn(Loan loan) {
    const auto returned = std::make_shared<bool>(false);  // guarded by mutex_
    // The stream is not gone before its loan has been returned, of which this one is a part.
    const auto note = [this, returned] {
      std::lock_guard lock(mutex_);
      *returned = true;
      changed_.notify_all();
    };
    if (loan.Returned(note)) return true;
    std::unique_lock lock(mutex_);
    WaitUntil([&] { return *returned; }, lock);
    return *returned;
  }

  bool Read(grpc::ByteBuffer* message) {
    bool due = false;
    {
      std::unique_lock lock(mutex_);
      WaitUntil([this] { return received_.size() > 0 || reads_ended_; }, lock);
      if (received_.size() == 0) return false;
      *message = received_.Pop();
      due = TakeTurnToRead();
    }
    if (due) StartRead(&incoming_);
    return true;
  }

  void WritesDone() {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(writes_ended_, true)) return;
      if (outgoing_.size() > 0) return;  // OnWriteDone says so
    }
    StartWritesDone();
  }

  // How the stream ended, or that it was given up.
  absl::Status End() {
    std::unique_lock lock(mutex_);
    Release();
    WaitUntil([this] { return done_; }, lock);
    if (done_) return status_;
    return was_interrupted_
               ? absl::CancelledError("stream: cancelled, while the server took no bytes")
               : absl::DeadlineExceededError(
                     "stream: the deadline passed, while the server took no bytes");
  }

  void WaitForDone() {
    std::unique_lock lock(mutex_);
    Release();
    changed_.wait(lock, [this] { return done_; });
  }

  void WaitForLoan() {
    cancel_.reset();
    {
      // gRPC's call holds what it has not sent as long as its context lives.
      std::lock_guard lock(context_mutex_);
      context_.reset();
    }
    if (loan_.Returned([this] {
          std::lock_guard lock(mutex_);
          returned_ = true;
          changed_.notify_all();
        })) {
      return;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return returned_; });
  }

 private:
  void OnWriteDone(bool ok) override {
    const grpc::ByteBuffer* next = nullptr;
    grpc::WriteOptions options;
    bool last = false;
    // Destroyed without the lock, because whoever waits for the return of a loan is told then.
    grpc::ByteBuffer written;
    Queue dropped;
    {
      std::lock_guard lock(mutex_);
      written = outgoing_.Pop();
      last = ok && writes_ended_ && outgoing_.size() == 0;
      if (!ok) {
        writes_ended_ = true;
        std::swap(outgoing_, dropped);
      }
      if (outgoing_.size() > 0) next = outgoing_.front();
      if (outgoing_.size() > 1) options.set_buffer_hint();  // to be sent with the one after it
      changed_.notify_all();
    }
    if (next != nullptr) StartWrite(next, options);
    if (last) StartWritesDone();
  }
  void OnReadDone(bool ok) override {
    bool due = false;
    {
      std::lock_guard lock(mutex_);
      reading_ = false;
      reads_ended_ = !ok;
      if (ok) received_.Push(&incoming_);
      due = TakeTurnToRead();
      changed_.notify_all();
    }
    if (due) StartRead(&incoming_);
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mutex_);
    done_ = true;
    status_ = refused_.ok() ? FromGrpcStatus(status) : refused_;
    changed_.notify_all();
  }

  // Waits for the condition, until the stream is given up.
  template <typename Condition>
  void WaitUntil(Condition condition, std::unique_lock<std::mutex>& lock) {
    const auto over = [&] { return condition() || given_up_; };
    while (true) {
      const bool asks = interrupted_ && !was_interrupted_;
      const Clock::time_point until =
          asks ? std::min(Clock::now() + absl::ToChronoNanoseconds(kAskInterval), give_up_at_)
               : give_up_at_;
      if (until == Clock::time_point::max()) return changed_.wait(lock, over);
      if (changed_.wait_until(lock, until, over)) return;
      if (Clock::now() >= give_up_at_) {
        given_up_ = true;
        changed_.notify_all();
        return;
      }
      if (asks) AskWhetherInterrupted(lock);
    }
  }

  void AskWhetherInterrupted(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const bool interrupted = interrupted_();
    if (interrupted) Cancel();
    lock.lock();
    if (!interrupted) return;
    was_interrupted_ = true;
    give_up_at_ =
        std::min(give_up_at_, Clock::now() + absl::ToChronoNanoseconds(kGraceOfInterruption));
  }

  // Operations start no more outside of reactions.
  void Release() {
    if (!std::exchange(released_, true)) RemoveHold();
  }

  // Whether the caller is to start a read now.
  bool TakeTurnToRead() {
    if (reading_ || reads_ended_ || received_.full()) return false;
    return reading_ = true;
  }

  grpc::GenericStub stub_;
  const absl::Status refused_;               // not OK: the call is cancelled before it begins
  const std::function<bool()> interrupted_;  // of the context
  std::mutex context_mutex_;
  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();
  CancelToken::Registration cancel_;
  Loan loan_;
  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::ByteBuffer incoming_;  // used only by gRPC and OnReadDone
  // Guarded by mutex_.
  Queue outgoing_;  // the first message is being written
  Queue received_;
  bool reading_ = true;
  bool writes_ended_ = false;
  bool reads_ended_ = false;
  bool released_ = false;
  bool done_ = false;
  bool returned_ = false;
  Clock::time_point give_up_at_;
  bool was_interrupted_ = false;
  bool given_up_ = false;  // waits are over, although gRPC has not ended the stream
  absl::Status status_;
};

RawStream::RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const CallContext& context)
    : reactor_(IsForked() ? nullptr : std::make_shared<Reactor>(channel, method, context)) {
  if (IsForked() || !context.cancel.has_value()) return;
  reactor_->SetCancel(context.cancel->OnCancel([weak = std::weak_ptr<Reactor>(reactor_)] {
    if (const auto reactor = weak.lock()) reactor->Cancel();
  }));
}

RawStream::~RawStream() {
  if (IsForked()) {
    LeakIfForked(reactor_);
    return;
  }
  reactor_->Cancel();
  reactor_->WaitForDone();
  reactor_->WaitForLoan();
}

bool RawStream::WaitToWrite() { return IsForked() || reactor_->WaitToWrite(); }
Loan RawStream::NewLoan() const { return IsForked() ? Loan() : reactor_->NewLoan(); }
bool RawStream::Write(const std::string& header, absl::Span<const absl::Span<const std::byte>> raw,
                      Loan loan) {
  return !IsForked() && reactor_->Write(header, raw, std::move(loan));
}
bool RawStream::WaitForReturn(Loan loan) { return reactor_->WaitForReturn(std::move(loan)); }
bool RawStream::Read(grpc::ByteBuffer* message) { return !IsForked() && reactor_->Read(message); }
void RawStream::WritesDone() {
  if (!IsForked()) reactor_->WritesDone();
}
void RawStream::Cancel() {
  if (!IsForked()) reactor_->Cancel();
}

absl::Status RawStream::Finish() {
  PHASOR_RETURN_IF_ERROR(CheckNotForked());
  WritesDone();
  grpc::ByteBuffer message;
  while (Read(&message)) message.Clear();
  return reactor_->End();
}

}  // namespace phasor::client_internal
