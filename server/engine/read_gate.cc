// SPDX-License-Identifier: Apache-2.0
// Decides which stream may read. Calls readers without holding the lock.
#include "server/engine/read_gate.h"

#include <algorithm>
#include <utility>

namespace phasor::engine {
namespace {

// A stream may read without waiting only if this fraction (1/n) of the budget stays free.
constexpr int64_t kScarcePart = 8;
// A waiting stream never needs more than this fraction (1/n) of the budget, so that no stream is
// shut out if the budget is lowered.
constexpr int64_t kMostPart = 2;

}  // namespace

bool ReadGate::MayRead(std::weak_ptr<Reader> reader, int64_t bytes) {
  if (admission_.room_bytes() - bytes >= admission_.limit_bytes() / kScarcePart) return true;
  MutexLock lock(&mu_);
  if (!open_) waiting_.push_back({std::move(reader), bytes});
  return open_;
}

ReadGate::Readers ReadGate::TakeLeavers() {
  Readers leavers;
  MutexLock lock(&mu_);
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    std::shared_ptr<Reader> reader = waiting.reader.lock();
    if (reader != nullptr && reader->waits() && !open_) return false;
    if (reader != nullptr) leavers.push_back(std::move(reader));
    return true;
  });
  return leavers;
}

std::shared_ptr<Reader> ReadGate::Next(Permit* room) {
  MutexLock lock(&mu_);
  if (waiting_.empty()) return nullptr;
  const int64_t bytes = std::min(waiting_.front().bytes, admission_.limit_bytes() / kMostPart);
  if (admission_.room_bytes() < bytes) return nullptr;
  std::shared_ptr<Reader> reader = waiting_.front().reader.lock();
  waiting_.pop_front();
  if (reader != nullptr) *room = admission_.Hold(bytes);
  return reader;
}

void ReadGate::Look() {
  for (const std::shared_ptr<Reader>& reader : TakeLeavers()) reader->Read(Permit());
  Permit room;
  while (const std::shared_ptr<Reader> reader = Next(&room)) reader->Read(std::move(room));
}

void ReadGate::Open() {
  {
    MutexLock lock(&mu_);
    open_ = true;
  }
  Look();
}

int64_t ReadGate::waiting() {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(waiting_.size());
}

}  // namespace phasor::engine
