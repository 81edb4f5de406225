// SPDX-License-Identifier: Apache-2.0
// Runs the streams of tensor calls: flow control, chunked items, draining and idle timeouts.
//
// Lifetimes: gRPC uses the reactor until OnDone. The calls of its messages hold it until the engine
// destroys them, which may be later, so it is shared. `context` is used only before Finish.
//
// Order: messages are taken one at a time. The next one is read when the previous one has its share
// of the byte budget. If some messages are not answered yet, reading also waits until the budget
// has room for another message of that size. gRPC runs reactions on its own threads, never inside
// the calls that start an operation, so it is safe to start one under the lock.
#include "server/api/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/api/answer_queue.h"
#include "server/api/open_items.h"
#include "server/engine/plan_budget.h"
#include "server/grpc/access.h"
#include "server/grpc/call_counter.h"
#include "server/grpc/caller.h"
#include "server/grpc/finish_call.h"
#include "server/grpc/idle_timer.h"
#include "server/grpc/later.h"
#include "server/grpc/wire.h"

namespace phasor::rpc {

// The reactor of one stream. Reads messages, submits them to the engine and writes the answers.
// Owns itself from Begin until OnDone. Threads: gRPC and the engine call it from their own threads;
// the state is guarded by `mu_`.
class Stream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                     public engine::Reader,
                     public std::enable_shared_from_this<Stream> {
 public:
  Stream(StreamSet* set, const StreamMethod& method, const StreamOptions& options,
         engine::Engine* engine, grpc::CallbackServerContext* context)
      : set_(*set),
        method_(method),
        options_(options),
        engine_(*engine),
        context_(context),
        backend_(engine->backend()->name()),
        client_(ClientOf(*context)),
        deadline_(DeadlineOf(*context)) {}

  void Begin(bool draining) {
    self_ = shared_from_this();
    timer_.emplace(options_.idle_timeout, [weak = weak_from_this()] {
      const std::shared_ptr<Stream> stream = weak.lock();
      return stream == nullptr || stream->EndIfIdle();
    });
    Turn turn(this);
    if (absl::Status refusal = Refusal(context_); !refusal.ok()) end_ = std::move(refusal);
    if (draining && !end_.has_value()) end_ = Draining();
    memory_ = CallerMemoryOf(options_.limits.memory, *context_);
    quota_ = CallerQuota(*context_);
    observer_ = CallCounter::ObserverOf(context_);
  }

  void Drain() {
    Turn turn(this);
    draining_ = true;
  }

  bool waits() const override { return waits_.load(std::memory_order_relaxed); }

  void Read(Permit room) override {
    Turn turn(this);
    asked_ = false;
    if (taking_) return;  // all answers were sent, so a read has begun
    if (room.bytes() > 0) room_ = std::move(room);
  }

 private:
  class Call;

  // Reactions --------------------------------------------------------------------------------

  void OnReadDone(bool ok) override {
    {
      Turn turn(this);
      if (finished_) return;
      if (!ok) {
        taking_ = false;
        if (!end_.has_value()) end_ = absl::OkStatus();
        return;
      }
      answers_.NoteMessage(/*alone=*/++owed_messages_ == 1);
      room_.reset();
      last_bytes_ = static_cast<int64_t>(incoming_.Length());
    }
    CallCounter::NoteMessage(context_, static_cast<int64_t>(incoming_.Length()));
    Take();
  }

  void OnWriteDone(bool ok) override {
    Turn turn(this);
    CallCounter::NoteAnswerTaken(context_);
    Settle(answers_.EndWrite());
    if (!ok) Abandon();
  }

  void OnCancel() override {
    Turn turn(this);
    Abandon();
  }

  void OnDone() override {
    timer_->Stop();
    set_.Remove(this);
    std::shared_ptr<Stream>(std::move(self_)).reset();
  }

  // Taking a message -------------------------------------------------------------------------

  void Take();
  void Take(absl::StatusOr<StreamRequest> request, const WalkedMessage& walked,
            std::unique_ptr<Call> call);
  absl::StatusOr<StreamRequest> Parse(const WalkedMessage& walked, const TableSource* tables,
                                      int64_t* plan_bytes);
  // The engine items of a message. If there are none, nothing is computed and `call` has the
  // answer.
  absl::StatusOr<RequestView> ViewOf(StreamRequest request, const WalkedMessage& walked,
                                     Call* call);
  absl::Status Open(int64_t id, ChunkedItem item, Call* call);
  void Break(const absl::Status& status);
  void Submit(std::unique_ptr<Call> call, RequestView view);

  // What calls say ---------------------------------------------------------------------------

  // The time, for the observer.
  std::chrono::steady_clock::time_point NowIfObserved() const {
    if (observer_ == nullptr) return {};
    return std::chrono::steady_clock::now();
  }

  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

  // The message being taken has its share of the byte budget, or is answered and costs none; read
  // the next one.
  void Taken(int64_t cost_bytes) {
    Turn turn(this);
    taking_ = false;
    owed_bytes_ += cost_bytes;
  }

  void Answer(grpc::ByteBuffer answer, int64_t cost_bytes, Permit quota_permit) {
    Turn turn(this);
    if (abandoned_) {
      Settle(cost_bytes);
    } else {
      answers_.Push({std::move(answer), cost_bytes, std::move(quota_permit), submits_});
    }
  }

  // The item failed: later runs with its id are refused.
  void Close(int64_t id, const ChunkedItem* item) {
    absl::MutexLock lock(&mu_);
    open_.Close(id, item);
  }

  // State ------------------------------------------------------------------------------------

  void Settle(int64_t cost_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    --owed_messages_;
    owed_bytes_ -= cost_bytes;
    if (owed_messages_ > 0) return;
    room_.reset();
    timer_->Touch();  // only a stream that owes nothing can be idle
  }

  // The caller reads no more answers: drops them and ends the stream.
  void Abandon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    abandoned_ = true;
    room_.reset();
    end_ = absl::CancelledError("stream: cancelled by the caller");
    open_.Clear();
    DropAnswers();
  }

  void DropAnswers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (answers_.CanDrop()) Settle(answers_.Drop());
  }

  bool EndIfIdle() {
    Turn turn(this);
    if (end_.has_value()) return true;
    if (owed_messages_ > 0) return false;  // OpenCalls ends it if the caller takes no answers
    end_ = absl::DeadlineExceededError(
        absl::StrCat("stream: nothing received for ", absl::FormatDuration(options_.idle_timeout),
                     "; send earlier, or ask for a larger --stream-idle-timeout"));
    return true;
  }

  bool WantsToRead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !taking_ && !end_.has_value() && owed_messages_ < kMaxStreamMessages &&
           owed_bytes_ < kMaxStreamBytes;
  }

  // Whether there is room in the byte budget for the next message. If not, asks the engine to call
  // Read. A stream that owes no answer needs no room: it can then see its end however full the
  // budget is.
  bool MayRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (owed_messages_ == 0 || room_.has_value()) return true;
    waits_.store(true, std::memory_order_relaxed);
    if (!asked_) asked_ = !engine_.MayRead(weak_from_this(), std::max<int64_t>(last_bytes_, 1));
    return !asked_;
  }

  // The messages that had arrived are taken.
  void EndHold() {
    const auto alive = shared_from_this();  // gRPC may be done with the stream at the turn's end
    Turn turn(this);
    answers_.EndHold();
    if (abandoned_) DropAnswers();
  }

  // Starts what is due of finishing and reading. Returns what is due of writing.
  AnswerQueue::Step Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (finished_) return AnswerQueue::Step::kNothing;
    const AnswerQueue::Step step = answers_.Next();
    if (step == AnswerQueue::Step::kWrite) {
      CallCounter::NoteAnswer(context_, static_cast<int64_t>(answers_.front().Length()));
    }
    if (draining_ && !end_.has_value() && owed_messages_ == 0 && open_.empty()) end_ = Draining();
    if (end_.has_value() && owed_messages_ == 0) {
      finished_ = true;
      waits_.store(false, std::memory_order_relaxed);
      FinishStream(context_, this, *end_);
      return AnswerQueue::Step::kNothing;
    }
    const bool wants = WantsToRead();
    const bool reads = wants && MayRead();
    if (reads || !wants) waits_.store(false, std::memory_order_relaxed);
    if (reads) {
      taking_ = true;
      StartRead(&incoming_);
    }
    if (!taking_) room_.reset();
    return step;
  }

  // Holds the lock and, at its end, starts what is due. A write starts without the lock, because it
  // may send, and meanwhile another thread takes the next message. Until it is done the stream owes
  // that answer, so it lives. If more answers wait, gRPC may send this one together with the next.
  class ABSL_SCOPED_LOCKABLE Turn {
   public:
    explicit Turn(Stream* stream) ABSL_EXCLUSIVE_LOCK_FUNCTION(stream->mu_) : stream_(*stream) {
      stream_.mu_.Lock();
    }
    ~Turn() ABSL_UNLOCK_FUNCTION() {
      const AnswerQueue::Step step = stream_.Continue();
      grpc::WriteOptions options;
      if (stream_.answers_.CanWaitForNext()) options.set_buffer_hint();
      const grpc::ByteBuffer* const answer =
          step == AnswerQueue::Step::kWrite ? &stream_.answers_.front() : nullptr;
      stream_.mu_.Unlock();
      if (answer != nullptr) stream_.StartWrite(answer, options);
      if (step == AnswerQueue::Step::kHold) stream_.end_hold_.Start(stream_.context_);
    }

   private:
    Stream& stream_;
  };

  StreamSet& set_;
  const StreamMethod& method_;
  const StreamOptions options_;
  engine::Engine& engine_;
  grpc::CallbackServerContext* const context_;
  const std::string backend_;
  const uint64_t client_;
  const absl::Time deadline_;
  std::shared_ptr<Stream> self_;
  std::optional<IdleTimer> timer_;
  memory::CallerMemory memory_;               // set in Begin
  CallerQuota quota_;                         // set in Begin
  std::shared_ptr<StreamObserver> observer_;  // set in Begin; nullptr: nobody hears of messages
  grpc::ByteBuffer incoming_;                 // used only by the thread that takes the message

  // Written under the lock, read without it.
  std::atomic<bool> abandoned_ = false;  // the caller reads no more answers
  std::atomic<bool> draining_ = false;   // takes no new items
  std::atomic<bool> waits_ = false;      // waits for room to read

  absl::Mutex mu_;
  bool taking_ ABSL_GUARDED_BY(mu_) = false;  // reading, or the message has no budget yet
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);  // set: reads no more, ends with this
  int64_t owed_messages_ ABSL_GUARDED_BY(mu_) = 0;        // received and not yet answered
  int64_t owed_bytes_ ABSL_GUARDED_BY(mu_) = 0;           // of those that were admitted
  int64_t last_bytes_ ABSL_GUARDED_BY(mu_) = 0;           // size of the last message
  bool asked_ ABSL_GUARDED_BY(mu_) = false;               // the engine is going to call Read
  std::optional<Permit> room_ ABSL_GUARDED_BY(mu_);       // budget for the message being read
  AnswerQueue answers_ ABSL_GUARDED_BY(mu_);
  OpenItems open_ ABSL_GUARDED_BY(mu_);
  Later end_hold_{[this] { EndHold(); }};  // meanwhile the stream owes an answer, so it lives

  // Whether this thread is in Submit: gRPC's thread, which takes the next message after this one.
  static inline thread_local bool submits_ = false;
};

// One item, or one run of a chunked item, as a call of the engine.
class Stream::Call final : public engine::Call {
 public:
  explicit Call(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {
    deadline = stream_->deadline_;
    waits_for_room = true;
  }

  // Takes the bytes of `message`. INVALID_ARGUMENT, RESOURCE_EXHAUSTED: they are not a valid
  // message, or exceed a limit.
  absl::StatusOr<WalkedMessage> Receive(grpc::ByteBuffer* message, const WalkLimits& limits) {
    PHASOR_RETURN_IF_ERROR(received_.Take(message));
    received_bytes = received_.size();
    return received_.Walk(limits);
  }

  bool cancelled() const override { return stream_->abandoned(); }
  uint64_t client() const override { return stream_->client_; }
  absl::Status FetchPayload(engine::BufferPool& pool) override {
    if (transfers == nullptr) return absl::OkStatus();
    return transfers->Fetch(pool, absl::MakeSpan(items));
  }
  void ReleasePayload() override {
    received_.Release();
    if (transfers != nullptr) transfers->Release();
  }
  void Admitted() override {
    admitted_ = true;
    stream_->Taken(cost_bytes);
  }

  void Done(absl::StatusOr<engine::Result> result) override {
    if (result.ok() && transfers != nullptr) {
      transfers->Store(*result);
      phases.stored = std::chrono::steady_clock::now();
    }
    answer.status = result.ok() ? result->items[0].status : result.status();
    if (answer.status.ok()) {
      answer.result = &*result;
    } else if (chunk_of != nullptr) {
      stream_->Close(answer.id, chunk_of.get());
    }
    Answer();
    if (!admitted_) stream_->Taken(0);
  }

  // Sends `answer`, which describes the first item if its status is OK.
  void Answer() {
    if (answer.status.ok()) answer.item = &items[0];
    grpc::ByteBuffer message = stream_->method_.respond(answer);
    if (StreamObserver* const observer = stream_->observer_.get()) {
      observer->Answered({received_at_, static_cast<int>(answer.status.code()), received_bytes,
                          static_cast<int64_t>(message.Length()), phases});
    }
    stream_->Answer(std::move(message), admitted_ ? cost_bytes : 0, std::move(quota_permit));
  }

  StreamAnswer answer;
  int64_t plan_bytes = 0;                        // of large plans of this message
  std::shared_ptr<const ChunkedItem> chunk_of;   // the item borrows its positions
  Permit quota_permit;                           // of the caller's own bytes in flight
  std::unique_ptr<memory::Transfers> transfers;  // nullptr: nothing to do

 private:
  const std::shared_ptr<Stream> stream_;
  const std::chrono::steady_clock::time_point received_at_ = stream_->NowIfObserved();
  ReceivedMessage received_;
  bool admitted_ = false;
};

void Stream::Take() {
  auto call = std::make_unique<Call>(shared_from_this());
  const auto walked =
      call->Receive(&incoming_, {options_.limits.max_header_bytes, method_.raw_entries});
  if (!walked.ok()) return Break(walked.status());
  const tables::LoadedTables loaded(options_.limits.tables);
  auto request = Parse(*walked, &loaded, &call->plan_bytes);
  if (!loaded.lacks_a_table()) return Take(std::move(request), *walked, std::move(call));
  options_.limits.table_reads->Post(
      client_, [stream = shared_from_this(), walked = *walked, call = std::move(call)]() mutable {
        auto read = stream->Parse(walked, stream->options_.limits.tables, &call->plan_bytes);
        stream->Take(std::move(read), walked, std::move(call));
      });
}

void Stream::Take(absl::StatusOr<StreamRequest> request, const WalkedMessage& walked,
                  std::unique_ptr<Call> call) {
  if (!request.ok()) return Break(request.status());
  call->answer.id = request->id;
  absl::StatusOr<RequestView> view = ViewOf(*std::move(request), walked, call.get());
  call->answer.status = view.status();
  if (view.ok() && !view->items.empty()) return Submit(std::move(call), *std::move(view));
  call->Answer();
  Taken(0);
}

absl::StatusOr<StreamRequest> Stream::Parse(const WalkedMessage& walked, const TableSource* tables,
                                            int64_t* plan_bytes) {
  engine::PlanBudget budget;
  const auto cached = [this](const ResolvedSpec& spec) { return engine_.GetPlan(spec); };
  const auto plans = [&](const ResolvedSpec& spec) { return budget.Get(spec, cached); };
  const TensorCallLimits& limits = options_.limits;
  auto request = method_.parse(
      walked, ViewContext{plans, backend_, limits.max_message_bytes, limits.max_batch_items, tables,
                          memory_, limits.encoders, limits.memo});
  *plan_bytes = budget.large_bytes();
  return request;
}

absl::StatusOr<RequestView> Stream::ViewOf(StreamRequest request, const WalkedMessage& walked,
                                           Call* call) {
  if (const auto* chunk = std::get_if<v1::Chunk>(&request.content)) {
    call->answer.chunk = *chunk;
    absl::MutexLock lock(&mu_);
    return open_.Cut(request.id, *chunk, walked.raw, options_.limits.max_message_bytes,
                     &call->chunk_of);
  }
  if (draining_.load(std::memory_order_relaxed)) return Draining();
  if (auto* status = std::get_if<absl::Status>(&request.content)) return std::move(*status);
  if (auto* view = std::get_if<RequestView>(&request.content)) return std::move(*view);
  PHASOR_RETURN_IF_ERROR(Open(request.id, std::get<ChunkedItem>(std::move(request.content)), call));
  return RequestView{};
}

absl::Status Stream::Open(int64_t id, ChunkedItem item, Call* call) {
  if (const int64_t bytes = item.kept_bytes() + call->plan_bytes; bytes > 0) {
    PHASOR_ASSIGN_OR_RETURN(item.quota_permit, quota_.Take(bytes));
    PHASOR_ASSIGN_OR_RETURN(item.permit, engine_.Reserve(bytes));
  }
  const auto shared = std::make_shared<const ChunkedItem>(std::move(item));
  call->items.push_back(shared->Whole());
  absl::MutexLock lock(&mu_);
  PHASOR_RETURN_IF_ERROR(open_.CheckNew(id));
  if (!abandoned_) open_.Open(id, shared);
  return absl::OkStatus();
}

void Stream::Break(const absl::Status& status) {
  Turn turn(this);
  taking_ = false;
  Settle(0);
  if (!end_.has_value()) end_ = status;
}

void Stream::Submit(std::unique_ptr<Call> call, RequestView view) {
  engine_.CountPlanHits(view.recalled_items);
  call->items = std::move(view.items);
  call->cost_bytes =
      call->received_bytes + view.response_bytes + view.copied_bytes + call->plan_bytes;
  call->held = std::move(view.bound.held);
  call->transfers = std::move(view.bound.transfers);
  call->other_bytes = view.bound.shared_bytes;
  absl::StatusOr<Permit> permit = quota_.Take(call->cost_bytes);
  if (!permit.ok()) return call->Done(permit.status());
  call->quota_permit = *std::move(permit);
  call->phases.submitted = NowIfObserved();
  submits_ = true;
  engine_.Submit(std::move(call));
  submits_ = false;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StreamSet::Start(
    const StreamMethod& method, const StreamOptions& options, engine::Engine& engine,
    grpc::CallbackServerContext* context) {
  const auto stream = std::make_shared<Stream>(this, method, options, &engine, context);
  bool draining = false;
  {
    absl::MutexLock lock(&mu_);
    streams_.insert(stream.get());
    draining = draining_;
  }
  stream->Begin(draining);
  return stream.get();
}

void StreamSet::Drain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
  for (Stream* stream : streams_) stream->Drain();
}

}  // namespace phasor::rpc
