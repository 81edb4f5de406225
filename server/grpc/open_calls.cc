// SPDX-License-Identifier: Apache-2.0
// Limits and ends calls. It ends a call through gRPC's C interface, which takes a status for the
// caller. It holds its own reference to the call, so it needs no lock while gRPC reacts.
#include "server/grpc/open_calls.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

// Exported by gRPC, but its header is not installed. gRPC 1.51 tells of no other way that a message
// has the mark for compressed bytes: if the call names an encoding that gRPC does not know, it
// hands the bytes on as if they were plain.
__attribute__((weak)) uint32_t grpc_call_test_only_get_message_flags(grpc_call* call);

namespace phasor::rpc {
namespace {

// Counts as HTTP/2 does: 32 bytes for each header, and its text.
int64_t MetadataBytes(const grpc::ServerContextBase& context) {
  int64_t bytes = 0;
  for (const auto& [key, value] : context.client_metadata()) {
    bytes += static_cast<int64_t>(key.size() + value.size()) + 32;
  }
  return bytes;
}

void End(grpc_call* call, const absl::Status& status) {
  grpc_call_cancel_with_status(call, static_cast<grpc_status_code>(status.code()),
                               std::string(status.message()).c_str(), nullptr);
}

// A steady clock that is some milliseconds late, and cheaper than others to read for every answer.
int64_t CoarseNanos() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

grpc_call* Referenced(grpc_call* call) {
  grpc_call_ref(call);
  return call;
}

}  // namespace

OpenCalls::Call::Call(OpenCalls* calls, grpc::ServerContextBase* context)
    : calls_(*calls),
      call_(Referenced(context->c_call())),
      connection_(grpc_call_auth_context(call_)) {
  const OpenCallLimits& limits = calls_.limits_;
  const int64_t metadata = MetadataBytes(*context);
  if (!calls_.Add(this)) {
    refusal_ = absl::UnavailableError(
        absl::StrCat("connection: more than ", limits.calls_per_connection,
                     " calls at a time, twice --max-concurrent-streams; wait for some to end"));
  } else if (metadata > limits.metadata_bytes) {
    refusal_ = absl::ResourceExhaustedError(
        absl::StrCat("metadata: ", metadata, " bytes; must be at most ", limits.metadata_bytes,
                     "; send less, or ask for a larger --max-metadata-bytes"));
  }
  if (!refusal_.ok()) End(call_, refusal_);
}

void OpenCalls::Call::Refuse(absl::Status status) {
  refusal_ = std::move(status);
  End(call_, refusal_);
}

bool OpenCalls::Call::MarkedAsCompressed() const {
  constexpr uint32_t kCompressed = 0x80000000u;  // GRPC_WRITE_INTERNAL_COMPRESS, not installed
  return grpc_call_test_only_get_message_flags != nullptr &&
         (grpc_call_test_only_get_message_flags(call_) & kCompressed) != 0;
}

OpenCalls::Call::~Call() {
  calls_.Remove(this);
  grpc_auth_context_release(connection_);
  grpc_call_unref(call_);
}

void OpenCalls::Call::AnswerBegins(int64_t bytes) {
  if (calls_.answer_ns_ == 0) return;
  static const int64_t kByteNs = absl::ToInt64Nanoseconds(kAnswerTimePerMiB) >> 20;
  due_.store(CoarseNanos() + calls_.answer_ns_ + bytes * kByteNs, std::memory_order_relaxed);
}

OpenCalls::OpenCalls(const OpenCallLimits& limits, std::function<void(int64_t)> ended)
    : limits_(limits),
      answer_ns_(std::min(absl::ToInt64Nanoseconds(limits.answer_timeout), INT64_MAX / 4)),
      ended_(std::move(ended)) {
  if (limits_.answer_timeout > absl::ZeroDuration()) watch_ = std::thread([this] { Watch(); });
}

OpenCalls::~OpenCalls() {
  stop_.Stop();
  if (watch_.joinable()) watch_.join();
}

bool OpenCalls::Add(Call* call) {
  absl::MutexLock lock(&mu_);
  calls_.insert(call);
  if (call->connection_ == nullptr) return true;  // in-process call
  return ++of_connection_[call->connection_] <= limits_.calls_per_connection;
}

void OpenCalls::Remove(Call* call) {
  absl::MutexLock lock(&mu_);
  calls_.erase(call);
  const auto connection = of_connection_.find(call->connection_);
  if (connection == of_connection_.end()) return;
  if (--connection->second == 0) of_connection_.erase(connection);
}

void OpenCalls::Watch() {
  // So an overdue call is ended at most a quarter of the timeout late.
  const absl::Duration interval = limits_.answer_timeout / 4;
  while (!stop_.WaitFor(interval)) EndOverdue();
}

void OpenCalls::EndOverdue() {
  const int64_t now = CoarseNanos();
  std::vector<grpc_call*> overdue;
  {
    absl::MutexLock lock(&mu_);
    for (Call* const call : calls_) {
      if (call->due_.load(std::memory_order_relaxed) > now) continue;
      call->AnswerTaken();  // do not end it twice
      overdue.push_back(Referenced(call->call_));
    }
  }
  if (overdue.empty()) return;
  const absl::Status status = absl::DeadlineExceededError(
      absl::StrCat("answer: not taken within ", absl::FormatDuration(limits_.answer_timeout),
                   " (and ", absl::FormatDuration(kAnswerTimePerMiB),
                   " for each MiB); read faster, or ask for a larger --answer-timeout"));
  for (grpc_call* const call : overdue) {
    End(call, status);
    grpc_call_unref(call);
  }
  if (ended_) ended_(static_cast<int64_t>(overdue.size()));
}

}  // namespace phasor::rpc
