// SPDX-License-Identifier: Apache-2.0
// Unary calls over gRPC: channel arguments, one attempt of a call, and how a waiting caller's
// thread moves the bytes itself.
#include "client/grpc/grpc_channel.h"

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <charconv>
#include <climits>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "client/grpc/callback_threads.h"
#include "client/grpc/caller_queue.h"
#include "client/grpc/forked.h"
#include "kernels/base/invalid.h"
#include "kernels/base/steady_time.h"
#include "kernels/base/text.h"
#include "proto/grpc_status.h"

namespace phasor::client_internal {
namespace {

constexpr int kMaxFrameBytes = 4 << 20;
constexpr char kPushbackKey[] = "grpc-retry-pushback-ms";

// A timer made of gRPC alarms, which continue on threads of gRPC.
class AlarmTimer final : public Timer {
 public:
  absl::Time Now() override { return SteadyNow(); }
  void After(absl::Duration delay, absl::AnyInvocable<void()> then) override {
    struct Wait {
      grpc::Alarm alarm;
      absl::AnyInvocable<void()> then;
    };
    auto* const wait = new Wait{.then = std::move(then)};
    wait->alarm.Set(WallTimeAfter(delay), [wait](bool) {
      auto next = std::move(wait->then);
      delete wait;  // the alarm keeps this function, so the function must not keep the alarm
      next();
    });
  }
};

Timer* RealTimer() {
  static auto* timer = new AlarmTimer;
  return timer;
}

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(INT_MAX);
  args.SetMaxSendMessageSize(INT_MAX);
  args.SetLoadBalancingPolicyName("round_robin");
  args.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);             // RunWithRetries retries
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // each channel has its own connections
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  // Keepalive detects a peer that is gone. The second value also becomes TCP_USER_TIMEOUT: after
  // that time a peer that stopped reading is given up, and the memory that was lent for sending is
  // free again.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  return args;
}

// What one attempt uses until it ends.
struct Attempt {
  grpc::ClientContext context;
  grpc::ByteBuffer response;
  CancelToken::Registration cancel;
  // Of a caller that waits:
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
};

bool IsPort(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0 && port < 65536;
}

std::optional<absl::Duration> Pushback(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto it = trailers.find(kPushbackKey);
  if (it == trailers.end()) return std::nullopt;
  int64_t ms = 0;
  // A value that is not a number means never, as in gRPC itself.
  if (!absl::SimpleAtoi(absl::string_view(it->second.data(), it->second.size()), &ms)) ms = -1;
  return absl::Milliseconds(ms);
}

// A call with all its attempts. Its callbacks own it. Threads: one callback runs at a time.
class PendingCall : public std::enable_shared_from_this<PendingCall> {
 public:
  PendingCall(RawCall call, const CallContext& context, std::shared_ptr<grpc::Channel> channel,
              std::shared_ptr<grpc::GenericStub> stub)
      : call_(std::move(call)),
        context_(context),
        channel_(std::move(channel)),
        stub_(std::move(stub)),
        request_(WriteRawMessage(call_.header, call_.raw, loan_)) {
    if (context_.interrupted != nullptr && !context_.cancel.has_value()) context_.cancel.emplace();
  }

  // `timer`: nullptr: real time.
  void Run(RetryPolicy policy, Timer* timer) {
    policy.connected = [channel = channel_] {
      return channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY;
    };
    if (timer == nullptr) timer = context_.caller_waits ? &waiting_ : RealTimer();
    auto self = shared_from_this();
    RunWithRetries(
        policy, context_, timer, [self](auto ended) { self->StartAttempt(std::move(ended)); },
        [self](absl::Status status) { self->Finish(std::move(status)); });
  }

 private:
  using Ended = absl::AnyInvocable<void(AttemptResult)>;

  // The timer of a caller that waits.
  class WaitingTimer final : public Timer {
   public:
    explicit WaitingTimer(PendingCall& call) : call_(call) {}
    absl::Time Now() override { return SteadyNow(); }
    void After(absl::Duration delay, absl::AnyInvocable<void()> then) override {
      std::unique_ptr<CallerQueue> queue = CallerQueue::Take();
      if (queue->Sleep(delay, *call_.channel_, call_.context_.interrupted)) {
        call_.context_.cancel->Cancel();
      }
      CallerQueue::GiveBack(std::move(queue));
      then();
    }

   private:
    PendingCall& call_;
  };

  void StartAttempt(Ended ended) {
    auto attempt = std::make_shared<Attempt>();
    SetUp(context_, &attempt->context);
    if (context_.cancel.has_value()) {
      // The hook does not keep the attempt alive: it cancels an attempt that still exists.
      attempt->cancel = context_.cancel->OnCancel([weak = std::weak_ptr<Attempt>(attempt)] {
        if (auto alive = weak.lock()) alive->context.TryCancel();
      });
    }
    if (context_.caller_waits) return WaitForAttempt(std::move(attempt), std::move(ended));
    KeepCallbackThreads();
    auto shared_ended = std::make_shared<Ended>(std::move(ended));
    stub_->UnaryCall(&attempt->context, call_.method, {}, &request_, &attempt->response,
                     [self = shared_from_this(), attempt, shared_ended](grpc::Status status) {
                       (*shared_ended)(self->EndAttempt(*attempt, status));
                     });
  }

  // If the wait ends before the attempt, another thread waits on, and the call ends there.
  void WaitForAttempt(std::shared_ptr<Attempt> attempt, Ended ended) {
    std::unique_ptr<CallerQueue> queue = CallerQueue::Take();
    attempt->reader =
        stub_->PrepareUnaryCall(&attempt->context, call_.method, request_, queue->queue());
    attempt->reader->StartCall();
    attempt->reader->Finish(&attempt->response, &attempt->status, attempt.get());
    if (queue->Wait(Limits(), [this] { context_.cancel->Cancel(); })) {
      CallerQueue::GiveBack(std::move(queue));
      return EndWaited(std::move(attempt), std::move(ended));
    }
    std::thread([self = shared_from_this(), queue = std::move(queue), attempt = std::move(attempt),
                 ended = std::move(ended)]() mutable {
      queue->WaitForEnd();
      self->EndWaited(std::move(attempt), std::move(ended));
    }).detach();
  }

  void EndWaited(std::shared_ptr<Attempt> attempt, Ended ended) {
    AttemptResult result = EndAttempt(*attempt, attempt->status);
    attempt.reset();  // gRPC keeps unsent bytes as long as the context lives
    ended(std::move(result));
  }

  AttemptResult EndAttempt(Attempt& attempt, const grpc::Status& status) {
    attempt.cancel.reset();
    absl::Status result = FromGrpcStatus(status);
    if (result.ok()) result = TakeResponse(attempt.response);
    attempt.response.Clear();
    std::optional<absl::Duration> pushback = Pushback(attempt.context);
    if (call_.refused != nullptr) {
      *call_.refused = absl::IsUnavailable(result) && pushback.has_value();
    }
    return {std::move(result), pushback};
  }

  absl::Status TakeResponse(const grpc::ByteBuffer& response) {
    absl::StatusOr<ReceivedMessage> message = ReadRawMessage(response);
    if (!message.ok()) return std::move(message).status();
    return call_.on_response(*message);
  }

  void Finish(absl::Status status) {
    request_.Clear();
    if (context_.caller_waits && WaitForLoan()) return call_.done(std::move(status));
    KeepCallbackThreads();
    auto hand_on = [self = shared_from_this(), status] {
      RealTimer()->After(absl::ZeroDuration(), [self, status] { self->call_.done(status); });
    };
    if (loan_.Returned(std::move(hand_on))) call_.done(std::move(status));
  }

  // Waits until gRPC has returned what it borrowed. False: the wait ended before.
  bool WaitForLoan() {
    const auto returned = [this] { return loan_.Returned(nullptr); };
    if (returned()) return true;
    std::unique_ptr<CallerQueue> queue = CallerQueue::Take();
    const bool waited = queue->PollUntil(returned, Limits());
    CallerQueue::GiveBack(std::move(queue));
    return waited;
  }

  WaitLimits Limits() const { return {context_.deadline, context_.interrupted}; }

  RawCall call_;
  CallContext context_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::shared_ptr<grpc::GenericStub> stub_;
  WaitingTimer waiting_{*this};
  Loan loan_;
  grpc::ByteBuffer request_;
};

}  // namespace

absl::StatusOr<std::string> GrpcTarget(std::string_view target) {
  for (std::string_view scheme : {"dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:"}) {
    if (target.starts_with(scheme) && target.size() > scheme.size()) return std::string(target);
  }
  const size_t colon = target.rfind(':');
  if (colon != std::string_view::npos && colon > 0 && target.find('/') == std::string_view::npos &&
      IsPort(target.substr(colon + 1))) {
    return StrCat("dns:///", target);
  }
  return UnknownTarget(target);
}

absl::Status UnknownTarget(std::string_view target) {
  return Invalid("target: \"", target,
                 "\" is not known; must be dns:///host:port, host:port, ipv4:a.b.c.d:port, "
                 "ipv6:[a]:port, unix:/path or inproc:");
}

void SetUp(const CallContext& context, grpc::ClientContext* call) {
  if (context.deadline != absl::InfiniteFuture()) {
    call->set_deadline(WallTimeAfter(context.deadline - SteadyNow()));
  }
  for (const auto& [key, value] : context.metadata) call->AddMetadata(key, value);
}

GrpcChannel::GrpcChannel(const std::string& target, const ClientOptions& options, Timer* timer,
                         const ChannelSecurity& security)
    : retry_{options.max_attempts, options.initial_backoff, options.max_backoff}, timer_(timer) {
  for (int i = 0; i < options.channels; ++i) {
    channels_.push_back(security.Connect(target, Arguments()));
    stubs_.push_back(std::make_shared<grpc::GenericStub>(channels_.back()));
  }
}

bool GrpcChannel::CanConnect() const {
  return channel()->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE;
}

GrpcChannel::~GrpcChannel() {
  LeakIfForked(stubs_);
  LeakIfForked(channels_);
}

absl::Status CheckMessageBytes(int64_t bytes) {
  if (bytes <= kMaxMessageBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("request: ", bytes, " bytes; must be at most ", kMaxMessageBytes,
             " in one message; split the tokens over several calls"));
}

void GrpcChannel::Start(RawCall call, const CallContext& context) {
  absl::Status status = CheckNotForked();
  status.Update(CheckMessageBytes(RawMessageBytes(call.header, call.raw)));
  status.Update(CheckMetadata(context.metadata));
  if (!status.ok()) return call.done(std::move(status));
  const size_t turn = call.on_first ? 0 : next_stub_.fetch_add(1, std::memory_order_relaxed);
  RetryPolicy policy = retry_;
  policy.only_refused = call.once;
  const size_t chosen = turn % stubs_.size();
  std::make_shared<PendingCall>(std::move(call), context, channels_[chosen], stubs_[chosen])
      ->Run(policy, timer_);
}

}  // namespace phasor::client_internal
