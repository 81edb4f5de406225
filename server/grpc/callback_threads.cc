// SPDX-License-Identifier: Apache-2.0
// Gets hold of gRPC's threads by calls over a channel to nowhere: they fail at once, and what
// follows runs on one of those threads. A thread is held while a call's continuation waits.
#include "server/grpc/callback_threads.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "proto/grpc_version.h"

namespace phasor {
namespace {

// If no further thread has come for so long, all have.
constexpr absl::Duration kQuiet = absl::Milliseconds(20);
// Less than the second after which a thread of gRPC sleeps.
constexpr absl::Duration kBeat = absl::Milliseconds(250);

struct FailingCall {
  grpc::ClientContext context;
  grpc::ByteBuffer request, response;
};

}  // namespace

int ReceivingThreads(int cores) { return std::max(1, cores / 2); }

CallbackThreads::CallbackThreads(int wanted, std::function<bool()> all_are_useful)
    : all_are_useful_(std::move(all_are_useful)),
      nowhere_(grpc::CreateCustomChannel("", nullptr, {})) {
  if (!PHASOR_GRPC_HAS_CALLBACK_THREADS) return;
  if (wanted < kMostCallbackThreads) spare_ = CountSpare(std::max(1, wanted));
  beat_ = std::thread([this] { Beat(); });
}

CallbackThreads::~CallbackThreads() {
  stop_.Stop();
  if (beat_.joinable()) beat_.join();
  MutexLock lock(&mu_);
  stay_ = 0;
  changed_.SignalAll();
  while (running_ > 0) changed_.Wait(&mu_);
}

// Has one of gRPC's threads call `what`.
void CallbackThreads::Run(std::function<void()> what) {
  {
    MutexLock lock(&mu_);
    ++running_;
  }
  auto* const call = new FailingCall;
  const grpc::Slice nothing;
  call->request = grpc::ByteBuffer(&nothing, 1);
  nowhere_.UnaryCall(&call->context, "/", {}, &call->request, &call->response,
                     [this, call, what = std::move(what)](const grpc::Status&) {
                       what();
                       delete call;  // it refers to the channel, which must end on no such thread
                       MutexLock lock(&mu_);
                       --running_;
                       changed_.SignalAll();
                     });
}

// Brings all threads together, then lets `wanted` of them go. Returns how many stay.
int CallbackThreads::CountSpare(int wanted) {
  Hold(kMostCallbackThreads);
  MutexLock lock(&mu_);
  for (int seen = -1; staying_ == 0 || staying_ != seen;) {
    seen = staying_;
    changed_.WaitFor(&mu_, kQuiet);
  }
  stay_ = std::max(0, staying_ - wanted);
  changed_.SignalAll();
  return stay_;
}

// Holds so many threads, as soon as they come.
void CallbackThreads::Hold(int count) {
  int missing = 0;
  {
    MutexLock lock(&mu_);
    missing = count - stay_;
    stay_ = count;
    changed_.SignalAll();
  }
  for (; missing > 0; --missing) Run([this] { Stay(); });
}

// The current thread of gRPC stays here as long as not enough others do.
void CallbackThreads::Stay() {
  MutexLock lock(&mu_);
  if (staying_ >= stay_) return;
  ++staying_;
  changed_.SignalAll();
  while (staying_ <= stay_) changed_.Wait(&mu_);
  --staying_;
}

// Whoever takes the last beat is awake until the next one, so one thread always is.
void CallbackThreads::Beat() {
  while (!stop_.WaitFor(kBeat)) {
    Hold(all_are_useful_() ? 0 : spare_);
    {
      MutexLock lock(&mu_);
      if (running_ > staying_) continue;  // gRPC has not got to the one before: it is busy
    }
    Run([] {});
  }
}

}  // namespace phasor
