// SPDX-License-Identifier: Apache-2.0
// Runs NVML on its own thread, and waits for its answers for a limited time.
#include "server/telemetry/gpu_reader.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace phasor::telemetry {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// State of the thread. It lives as long as the thread, which may outlive the reader.
struct GpuReader::State {
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  bool wanted = false;  // whether a reading is wanted or in progress
  bool ending = false;
  bool ended = false;
  std::vector<GpuReading> gpus;
  Clock::time_point read_at;
};

GpuReader::GpuReader(Open open, std::chrono::milliseconds patience)
    : patience_(patience),
      state_(std::make_shared<State>()),
      thread_([state = state_, open = std::move(open)] { Work(state, open); }) {}

GpuReader::~GpuReader() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, patience_, [this] { return state_->ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

GpuReadings GpuReader::Read() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (!state_->wanted && !state_->ended) {
    state_->wanted = true;
    state_->changed.notify_all();
    state_->changed.wait_for(lock, patience_, [this] { return !state_->wanted || state_->ended; });
  }
  return {state_->gpus, Clock::now() - state_->read_at};
}

void GpuReader::Work(const std::shared_ptr<State>& state, const Open& open) {
  std::unique_ptr<Nvml> nvml = open();
  std::unique_lock<std::mutex> lock(state->mutex);
  while (nvml != nullptr && !state->ending) {
    if (!state->wanted) {
      state->changed.wait(lock);
      continue;
    }
    lock.unlock();
    std::vector<GpuReading> gpus = nvml->Read();
    lock.lock();
    state->gpus = std::move(gpus);
    state->read_at = Clock::now();
    state->wanted = false;
    state->changed.notify_all();
  }
  lock.unlock();
  nvml.reset();  // this may hang too
  lock.lock();
  state->ended = true;
  state->changed.notify_all();
}

}  // namespace phasor::telemetry
