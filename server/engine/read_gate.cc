// SPDX-License-Identifier: Apache-2.0
// See read_gate.h. Readers are called without the lock.
#include "server/engine/read_gate.h"

#include <algorithm>
#include <utility>

namespace phasor::engine {
namespace {

// While less than this part of the budget is free, nobody reads without its room.
constexpr int64_t kScarcePart = 8;
// Of what a stream expects, at most this part of the budget must be free: a new, smaller budget
// shuts nobody out.
constexpr int64_t kMostPart = 2;

}  // namespace

bool ReadGate::MayRead(std::weak_ptr<Reader> reader, int64_t bytes) {
  if (admission_.room_bytes() - bytes >= admission_.limit_bytes() / kScarcePart) return true;
  MutexLock lock(&mu_);
  if (!open_) waiting_.push_back({std::move(reader), bytes});
  return open_;
}

std::shared_ptr<Reader> ReadGate::Next(Permit* room) {
  MutexLock lock(&mu_);
  while (!waiting_.empty()) {
    const Waiting& next = waiting_.front();
    const int64_t bytes = std::min(next.bytes, admission_.limit_bytes() / kMostPart);
    std::shared_ptr<Reader> reader = next.reader.lock();
    if (reader != nullptr && !open_) {
      if (admission_.room_bytes() < bytes) return nullptr;
      *room = admission_.Hold(bytes);
    }
    waiting_.pop_front();
    if (reader != nullptr) return reader;
  }
  return nullptr;
}

void ReadGate::Look() {
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
