// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 for tests: the functions that the Python package calls, about memory that a test
// says is on a GPU. It has one device and one context, which must be current where CUDA wants that.
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

namespace {

struct Allocation {
  uint64_t bytes = 0;
  uint64_t id = 0;
  bool exportable = false;
  char handle[64] = {};
};

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidContext = 201, kLaunchFailed = 719;
constexpr uint64_t kContext = 0xC0;

std::map<uint64_t, Allocation>& Allocations() {
  static auto* const allocations = new std::map<uint64_t, Allocation>;
  return *allocations;
}
std::vector<void*> contexts;
std::vector<uint64_t> synchronized;
bool stream_fails = false;
int exports = 0;

const std::pair<const uint64_t, Allocation>* Find(uint64_t address) {
  auto after = Allocations().upper_bound(address);
  if (after == Allocations().begin()) return nullptr;
  --after;
  return address < after->first + after->second.bytes ? &*after : nullptr;
}

bool InContext() {
  return !contexts.empty() && contexts.back() == reinterpret_cast<void*>(kContext);
}

}  // namespace

extern "C" {

// For tests.
void fake_cuda_allocate(uint64_t start, uint64_t bytes, int exportable, const char* handle) {
  static uint64_t last_id = 0;
  Allocation& made = Allocations()[start];
  made = {bytes, ++last_id, exportable != 0};
  std::memcpy(made.handle, handle, sizeof made.handle);
}
void fake_cuda_free(uint64_t start) { Allocations().erase(start); }
void fake_cuda_fail_streams(int fail) { stream_fails = fail != 0; }
// How often a handle was given.
int fake_cuda_exports() { return exports; }
// Removes the stream that was waited for first of those that were not asked for; -1: there is none.
int64_t fake_cuda_synchronized() {
  if (synchronized.empty()) return -1;
  const auto first = static_cast<int64_t>(synchronized.front());
  synchronized.erase(synchronized.begin());
  return first;
}

int cuPointerGetAttributes(unsigned count, const int* attributes, void** values, uint64_t address) {
  const auto* const found = Find(address);
  for (unsigned i = 0; i < count; ++i) {
    if (found == nullptr) continue;  // CUDA gives zeros, which the caller has put there
    const auto& [start, allocation] = *found;
    const bool exportable = allocation.exportable;
    const int device = 0;
    switch (attributes[i]) {
      case 1:
        std::memcpy(values[i], &kContext, sizeof kContext);
        break;
      case 7:
        std::memcpy(values[i], &allocation.id, sizeof allocation.id);
        break;
      case 9:
        std::memcpy(values[i], &device, sizeof device);
        break;
      case 10:
        std::memcpy(values[i], &exportable, sizeof exportable);
        break;
      case 11:
        std::memcpy(values[i], &start, sizeof start);
        break;
      case 12:
        std::memcpy(values[i], &allocation.bytes, sizeof allocation.bytes);
        break;
      default:
        return kInvalidValue;
    }
  }
  return kSuccess;
}

int cuIpcGetMemHandle(char* handle, uint64_t address) {
  if (!InContext()) return kInvalidContext;
  const auto* const found = Find(address);
  if (found == nullptr || found->first != address || !found->second.exportable) {
    return kInvalidValue;
  }
  ++exports;
  std::memcpy(handle, found->second.handle, sizeof found->second.handle);
  return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 40;
  return ordinal == 0 ? kSuccess : kInvalidValue;
}

// The UUID of tests/support/fake_driver.h.
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(i);
  return device == 40 ? kSuccess : kInvalidValue;
}

int cuCtxPushCurrent_v2(void* context) {
  contexts.push_back(context);
  return kSuccess;
}

int cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  return kSuccess;
}

int cuStreamSynchronize(void* stream) {
  if (!InContext()) return kInvalidContext;
  if (stream_fails) return kLaunchFailed;
  synchronized.push_back(reinterpret_cast<uint64_t>(stream));
  return kSuccess;
}
}
