// SPDX-License-Identifier: Apache-2.0
// gRPC asks for a context when a request has arrived and gives it back when the answer has been
// written.
#include "server/rpc/call_counter.h"

namespace phasor::rpc {

absl::Status Draining() { return absl::UnavailableError("server: draining, try another one"); }

class CallCounter::Context final : public grpc::CallbackServerContext {
 public:
  explicit Context(bool late) : late_(late) {}
  bool late() const { return late_; }

 private:
  const bool late_;
};

void CallCounter::StartDraining() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

bool CallCounter::WaitForEarlyCalls(absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithDeadline(absl::Condition(this, &CallCounter::NoEarlyCalls), deadline);
}

bool CallCounter::IsLate(const grpc::CallbackServerContext* context) {
  const auto* counted = dynamic_cast<const Context*>(context);
  return counted != nullptr && counted->late();
}

grpc::CallbackServerContext* CallCounter::NewCallbackServerContext() {
  absl::MutexLock lock(&mu_);
  if (!draining_) ++early_calls_;
  return new Context(draining_);
}

void CallCounter::Release(grpc::CallbackServerContext* context) {
  auto* const counted = dynamic_cast<Context*>(context);
  if (counted == nullptr) return;  // of a method that there is not: gRPC made it, and deletes it
  if (!counted->late()) {
    absl::MutexLock lock(&mu_);
    --early_calls_;
  }
  delete counted;
}

}  // namespace phasor::rpc
