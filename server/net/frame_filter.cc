// SPDX-License-Identifier: Apache-2.0
// Finds the heads of frames (RFC 9113, section 4.1), and adds up header blocks, resets and the
// frames of messages.
#include "server/net/frame_filter.h"

#include <algorithm>
#include <cstring>

namespace phasor {
namespace {

constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kReset = 3;
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr uint8_t kPadded = 8;

}  // namespace

void ResetBudget::Refill(absl::Time now) {
  if (now <= at_) return;
  left_ = std::min(kResetsAtOnce, left_ + kResetsPerSecond * absl::ToDoubleSeconds(now - at_));
  at_ = now;
}

bool ResetBudget::Take(absl::Time now) {
  MutexLock lock(&mu_);
  Refill(now);
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

bool ResetBudget::Full(absl::Time now) {
  MutexLock lock(&mu_);
  Refill(now);
  return left_ >= kResetsAtOnce;
}

std::shared_ptr<ResetBudget> ResetBudgets::Of(const std::string& peer, absl::Time now) {
  if (budgets_.size() >= kMostPeers && !budgets_.contains(peer)) {
    absl::erase_if(budgets_, [now](const auto& entry) {
      return entry.second.use_count() == 1 && entry.second->Full(now);
    });
  }
  std::shared_ptr<ResetBudget>& budget = budgets_[peer];
  if (budget == nullptr) budget = std::make_shared<ResetBudget>(now);
  return budget;
}

const char* FrameFilter::Read(absl::Span<const uint8_t> bytes, absl::Time now) {
  while (!bytes.empty()) {
    if (skip_ > 0) {
      const size_t n = std::min(static_cast<size_t>(skip_), bytes.size());
      skip_ -= static_cast<int64_t>(n);
      if (in_data_) messages_.Read(bytes.first(n));
      bytes.remove_prefix(n);
      continue;
    }
    const size_t n = std::min(kHeadBytes - head_bytes_, bytes.size());
    std::memcpy(head_.data() + head_bytes_, bytes.data(), n);
    head_bytes_ += n;
    bytes.remove_prefix(n);
    if (head_bytes_ < kHeadBytes) break;
    head_bytes_ = 0;
    if (const char* const wrong = BeginFrame(now); wrong != nullptr) return wrong;
  }
  return nullptr;
}

const char* FrameFilter::BeginFrame(absl::Time now) {
  skip_ = head_[0] << 16 | head_[1] << 8 | head_[2];
  const uint8_t type = head_[3];
  const uint8_t flags = head_[4];
  const uint32_t stream = (head_[5] & 0x7Fu) << 24 | head_[6] << 16 | head_[7] << 8 | head_[8];
  // gRPC resets the stream of a padded frame.
  in_data_ = type == kData && (flags & kPadded) == 0;
  if (in_data_) return messages_.Begin(stream, skip_, (flags & kEndStream) != 0);
  if (type == kReset) {
    messages_.Forget(stream);
    return resets_ == nullptr || resets_->Take(now) ? nullptr : "too many resets of streams";
  }
  if (type != kHeaders && type != kContinuation) return nullptr;
  block_ += static_cast<int64_t>(kHeadBytes) + skip_;
  if (block_ > header_block_bytes_) return "headers that do not end";
  if ((flags & kEndHeaders) != 0) block_ = 0;
  return nullptr;
}

}  // namespace phasor
