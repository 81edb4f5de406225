// SPDX-License-Identifier: Apache-2.0
// A fake libnvidia-ml.so.1 with two GPUs; the second does not report utilization and power. The
// environment variable FAKE_NVML may be "no driver" or "no gpu".
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kDriverNotLoaded = 9;
constexpr int kInvalidArgument = 2;

struct Gpu {
  const char* uuid;
  bool tells;
} gpus[] = {{"GPU-00000000-0000-0000-0000-000000000001", true},
            {"GPU-00000000-0000-0000-0000-000000000002", false}};

bool Is(const char* what) {
  const char* mode = std::getenv("FAKE_NVML");
  return mode != nullptr && std::strcmp(mode, what) == 0;
}

int Tell(const Gpu* gpu, unsigned value, unsigned* result) {
  if (!gpu->tells) return kNotSupported;
  *result = value;
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return Is("no driver") ? kDriverNotLoaded : kSuccess; }
int nvmlShutdown() { return kSuccess; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = Is("no gpu") ? 0 : 2;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= 2) return kInvalidArgument;
  *device = &gpus[index];
  return kSuccess;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "%s", static_cast<Gpu*>(device)->uuid);
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(void* device, unsigned* percents) {
  percents[1] = 99;  // of the memory's time
  return Tell(static_cast<Gpu*>(device), 25, &percents[0]);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return Tell(static_cast<Gpu*>(device), 123456, milliwatts);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return Tell(static_cast<Gpu*>(device), 700000, milliwatts);
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  const bool first = device == &gpus[0];
  total_free_used[0] = first ? 150ull << 30 : 80ull << 30;
  total_free_used[1] = first ? 149ull << 30 : 78ull << 30;
  total_free_used[2] = first ? 1ull << 30 : 2ull << 30;
  return kSuccess;
}
}
