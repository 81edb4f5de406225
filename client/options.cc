// SPDX-License-Identifier: Apache-2.0
// Checks client options and metadata, and keeps the hooks of cancel tokens.
#include "client/options.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "kernels/base/invalid.h"

namespace phasor {
namespace {

absl::Status CheckRange(std::string_view name, int value, int low, int high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidAt(name, value, " is out of range; must be in [", low, ", ", high, "]");
}

absl::Status CheckPositive(std::string_view name, absl::Duration value) {
  if (value > absl::ZeroDuration()) return absl::OkStatus();
  return InvalidAt(name, absl::FormatDuration(value), " is too short; must be above 0");
}

}  // namespace

absl::Status ClientOptions::Validate() const {
  absl::Status status = CheckPositive("timeout", timeout);
  status.Update(CheckRange("max_attempts", max_attempts, 1, 10));
  status.Update(CheckPositive("initial_backoff", initial_backoff));
  status.Update(CheckPositive("max_backoff", max_backoff));
  status.Update(CheckRange("channels", channels, 1, 64));
  status.Update(CheckRange("inproc_threads", inproc_threads, 1, 1024));
  if (staging_bytes < 0) {
    status.Update(
        Invalid("staging_bytes: ", staging_bytes, " is out of range; must be at least 0"));
  }
  if (tls.has_value() && tls->cert_file.empty() != tls->key_file.empty()) {
    status.Update(
        Invalid("tls: cert_file and key_file belong together; must be both set or both empty"));
  }
  if (!token.empty() && !token_file.empty()) {
    status.Update(Invalid("token: set beside token_file; must be one of both"));
  }
  return status;
}

namespace {

bool IsKey(std::string_view key) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  for (const std::string_view taken : {"te", "host", "content-type", "user-agent"}) {
    if (key == taken) return false;
  }
  return !key.empty() && !key.starts_with("grpc-") && std::all_of(key.begin(), key.end(), allowed);
}

bool IsText(std::string_view value) {
  return std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

absl::Status CheckMetadata(const Metadata& metadata) {
  for (size_t i = 0; i < metadata.size(); ++i) {
    const auto& [key, value] = metadata[i];
    if (!IsKey(key)) {
      return Invalid(
          "metadata[", i, "]: '", key,
          "' is no key that can be sent; use characters a-z 0-9 - _ . and none of grpc-*, "
          "te, host, content-type, user-agent");
    }
    if (!key.ends_with("-bin") && !IsText(value)) {
      return Invalid("metadata[", i, "]: the value of '", key,
                     "' is not printable ASCII; use a key that ends with -bin for bytes");
    }
  }
  return absl::OkStatus();
}

struct CancelToken::State {
  // A mutex of the standard library, not Abseil's: distributions build Abseil without TSan, which
  // then cannot see the order that absl::Mutex creates.
  std::mutex mutex;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
  int64_t next_id ABSL_GUARDED_BY(mutex) = 0;
  std::map<int64_t, std::function<void()>> hooks ABSL_GUARDED_BY(mutex);
};

CancelToken::CancelToken() : state_(std::make_shared<State>()) {}

void CancelToken::Cancel() {
  std::map<int64_t, std::function<void()>> hooks;
  {
    std::lock_guard lock(state_->mutex);
    state_->cancelled = true;
    hooks.swap(state_->hooks);
  }
  for (auto& [id, hook] : hooks) hook();
}

bool CancelToken::cancelled() const {
  std::lock_guard lock(state_->mutex);
  return state_->cancelled;
}

CancelToken::Registration CancelToken::OnCancel(std::function<void()> hook) const {
  int64_t id = 0;
  bool now = false;
  {
    std::lock_guard lock(state_->mutex);
    now = state_->cancelled;
    id = state_->next_id++;
    if (!now) state_->hooks.emplace(id, std::move(hook));
  }
  if (now) {
    hook();
    return nullptr;
  }
  return Registration(nullptr, [state = state_, id](void*) {
    std::function<void()> dropped;  // destroyed after the lock is released
    std::lock_guard lock(state->mutex);
    if (auto it = state->hooks.find(id); it != state->hooks.end()) {
      dropped = std::move(it->second);
      state->hooks.erase(it);
    }
  });
}

}  // namespace phasor
