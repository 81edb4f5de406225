// SPDX-License-Identifier: Apache-2.0
// See raw_stream.h. gRPC moves the bytes on its own threads, so that one side's waiting never stops
// the other.
#include "client/grpc/raw_stream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/time/time.h"
#include "client/grpc/grpc_channel.h"
#include "proto/grpc_status.h"

namespace phasor::client_internal {

// Shared with the hook that cancels it. gRPC uses it until OnDone, for which the destructor of
// RawStream waits.
class RawStream::Reactor final
    : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Reactor(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
          const CallContext& context)
      : stub_(channel), refused_(CheckMetadata(context.metadata)) {
    if (refused_.ok()) {
      SetUp(context, context_.get());
    } else {
      context_->TryCancel();
    }
    stub_.PrepareBidiStreamingCall(context_.get(), method, {}, this);
    AddHold();  // operations start outside of reactions
    StartCall();
  }

  void SetCancel(CancelToken::Registration cancel) { cancel_ = std::move(cancel); }
  void Cancel() {
    std::lock_guard lock(context_mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }

  bool Write(const std::string& header, absl::Span<const absl::Span<const std::byte>> raw) {
    std::unique_lock lock(mutex_);
    if (writes_ended_) return false;
    outgoing_ = WriteRawMessage(header, raw, loan_);
    writing_ = true;
    StartWrite(&outgoing_);
    changed_.wait(lock, [this] { return !writing_; });
    outgoing_.Clear();
    return !writes_ended_;
  }

  bool Read(grpc::ByteBuffer* message) {
    std::unique_lock lock(mutex_);
    if (reads_ended_) return false;
    reading_ = true;
    StartRead(&incoming_);
    changed_.wait(lock, [this] { return !reading_; });
    message->Swap(&incoming_);
    incoming_.Clear();
    return !reads_ended_;
  }

  void WritesDone() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !writing_; });
    if (writes_ended_) return;
    writes_ended_ = true;
    StartWritesDone();
  }

  absl::Status WaitForEnd() {
    std::unique_lock lock(mutex_);
    if (!std::exchange(released_, true)) RemoveHold();
    changed_.wait(lock, [this] { return done_; });
    return status_;
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
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) writes_ended_ = true;
    changed_.notify_all();
  }
  void OnReadDone(bool ok) override {
    std::lock_guard lock(mutex_);
    reading_ = false;
    if (!ok) reads_ended_ = true;
    changed_.notify_all();
  }
  void OnDone(const grpc::Status& status) override {
    std::lock_guard lock(mutex_);
    done_ = true;
    status_ = refused_.ok() ? FromGrpcStatus(status) : refused_;
    changed_.notify_all();
  }

  grpc::GenericStub stub_;
  const absl::Status refused_;  // not OK: the call is cancelled before it begins
  std::mutex context_mutex_;
  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();
  CancelToken::Registration cancel_;
  Loan loan_;
  std::mutex mutex_;
  std::condition_variable changed_;
  grpc::ByteBuffer outgoing_;
  grpc::ByteBuffer incoming_;
  // Guarded by mutex_.
  bool writing_ = false;
  bool reading_ = false;
  bool writes_ended_ = false;
  bool reads_ended_ = false;
  bool released_ = false;
  bool done_ = false;
  bool returned_ = false;
  absl::Status status_;
};

RawStream::RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const CallContext& context)
    : reactor_(std::make_shared<Reactor>(channel, method, context)) {
  if (!context.cancel.has_value()) return;
  reactor_->SetCancel(context.cancel->OnCancel([weak = std::weak_ptr<Reactor>(reactor_)] {
    if (const auto reactor = weak.lock()) reactor->Cancel();
  }));
}

RawStream::~RawStream() {
  reactor_->Cancel();
  (void)reactor_->WaitForEnd();
  reactor_->WaitForLoan();
}

bool RawStream::Write(const std::string& header,
                      absl::Span<const absl::Span<const std::byte>> raw) {
  return reactor_->Write(header, raw);
}
bool RawStream::Read(grpc::ByteBuffer* message) { return reactor_->Read(message); }
void RawStream::WritesDone() { reactor_->WritesDone(); }
void RawStream::Cancel() { reactor_->Cancel(); }

absl::Status RawStream::Finish() {
  WritesDone();
  grpc::ByteBuffer message;
  while (Read(&message)) message.Clear();
  return reactor_->WaitForEnd();
}

}  // namespace phasor::client_internal
