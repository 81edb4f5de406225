// SPDX-License-Identifier: Apache-2.0
// Callback services on raw bytes.
#include "bench/server/echo.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "bench/harness.h"
#include "proto/raw_message.h"
#include "server/api/answer_queue.h"
#include "server/api/service.h"
#include "server/engine/buffer.h"
#include "server/grpc/later.h"
#include "server/grpc/message_writer.h"

namespace phasor::bench {
namespace {

grpc::ServerUnaryReactor* FinishOk(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

void Occupy(std::chrono::nanoseconds time) {
  if (time == time.zero()) return;
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// Answers each message with the same bytes. Reads on while answers wait, and sends them when
// phasor-server does. Threads: those of gRPC.
class EchoStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  EchoStream(grpc::CallbackServerContext* context, const grpc::ByteBuffer& reply)
      : context_(*context), reply_(reply) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    mu_.Lock();
    if (ok) {
      answers_.NoteMessage(/*alone=*/++unanswered_ == 1);
      answers_.Push({reply_, 0, {}, /*may_be_held=*/true});
      StartRead(&message_);
    } else {
      reads_ended_ = true;
    }
    EndTurn();
  }
  void OnWriteDone(bool /*ok*/) override {
    mu_.Lock();
    answers_.EndWrite();
    --unanswered_;
    EndTurn();
  }
  void OnDone() override { delete this; }

 private:
  void EndHold() {
    mu_.Lock();
    answers_.EndHold();
    EndTurn();
  }

  void EndTurn() ABSL_UNLOCK_FUNCTION(mu_) {
    using Step = rpc::AnswerQueue::Step;
    const Step step = answers_.Next();
    grpc::WriteOptions options;
    if (answers_.CanWaitForNext()) options.set_buffer_hint();
    const grpc::ByteBuffer* const answer = step == Step::kWrite ? &answers_.front() : nullptr;
    const bool ends = reads_ended_ && unanswered_ == 0;
    mu_.Unlock();
    if (answer != nullptr) StartWrite(answer, options);
    if (step == Step::kHold) end_hold_.Start(&context_);
    if (ends) Finish(grpc::Status::OK);
  }

  grpc::CallbackServerContext& context_;
  const grpc::ByteBuffer reply_;
  grpc::ByteBuffer message_;
  rpc::Later end_hold_{[this] { EndHold(); }};
  absl::Mutex mu_;
  rpc::AnswerQueue answers_ ABSL_GUARDED_BY(mu_);
  int64_t unanswered_ ABSL_GUARDED_BY(mu_) = 0;
  bool reads_ended_ ABSL_GUARDED_BY(mu_) = false;
};

class EchoService final : public rpc::PositionEmbeddingServiceBase {
 public:
  EchoService(int64_t reply_bytes, absl::Duration busy) : busy_(absl::ToChronoNanoseconds(busy)) {
    const grpc::Slice slice(std::string(static_cast<size_t>(reply_bytes), 'x'));
    reply_ = grpc::ByteBuffer(&slice, 1);
  }

  grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                   grpc::ByteBuffer* response) override {
    Occupy(busy_);
    *response = reply_;
    return FinishOk(context);
  }
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamEncode(
      grpc::CallbackServerContext* context) override {
    return new EchoStream(context, reply_);
  }
  grpc::ServerUnaryReactor* ApplyRoPE(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override {
    *response = *request;
    return FinishOk(context);
  }

 private:
  const std::chrono::nanoseconds busy_;
  grpc::ByteBuffer reply_;
};

class CopyingService final : public rpc::PositionEmbeddingServiceBase {
 public:
  grpc::ServerUnaryReactor* ApplyRoPE(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override {
    const auto bytes = static_cast<int64_t>(request->Length());
    const engine::BufferRef buffer = pool_.Get(bytes);
    std::vector<grpc::Slice> slices;
    if (buffer == nullptr || !request->Dump(&slices).ok()) Die("a request cannot be copied");
    auto* end = reinterpret_cast<uint8_t*>(buffer->data());
    for (const grpc::Slice& slice : slices) end = std::copy(slice.begin(), slice.end(), end);
    *response = rpc::WriteMessage({}, kRawField, {{.offset = 0, .bytes = bytes}}, buffer);
    return FinishOk(context);
  }

 private:
  static constexpr int64_t kKeptBytes = int64_t{1} << 30;
  engine::BufferPool pool_{kKeptBytes};
};

}  // namespace

std::unique_ptr<grpc::Service> MakeEchoService(int64_t reply_bytes, absl::Duration busy) {
  return std::make_unique<EchoService>(reply_bytes, busy);
}

std::unique_ptr<grpc::Service> MakeCopyingService() { return std::make_unique<CopyingService>(); }

}  // namespace phasor::bench
