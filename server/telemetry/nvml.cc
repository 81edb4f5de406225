// SPDX-License-Identifier: Apache-2.0
// Loads the NVML library and calls it. The library belongs to the driver, so it is loaded at run
// time. Types and numbers are those of its stable interface.
#include "server/telemetry/nvml.h"

#include <dlfcn.h>

#include <array>
#include <utility>

namespace phasor::telemetry {
namespace {

using Device = struct NvmlDevice*;
constexpr int kSuccess = 0;

struct Utilization {
  unsigned gpu;  // percent
  unsigned memory;
};
struct Memory {
  unsigned long long total, free, used;  // bytes
};

struct Functions {
  int (*init)();
  int (*shut_down)();
  int (*count)(unsigned*);
  int (*by_index)(unsigned, Device*);
  int (*uuid)(Device, char*, unsigned);
  int (*utilization)(Device, Utilization*);
  int (*power_usage)(Device, unsigned*);  // milliwatts
  int (*power_limit)(Device, unsigned*);
  int (*memory)(Device, Memory*);
};

// Returns false if the library has no such function.
template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool FindAll(void* library, Functions* f) {
  return Find(library, "nvmlInit_v2", &f->init) && Find(library, "nvmlShutdown", &f->shut_down) &&
         Find(library, "nvmlDeviceGetCount_v2", &f->count) &&
         Find(library, "nvmlDeviceGetHandleByIndex_v2", &f->by_index) &&
         Find(library, "nvmlDeviceGetUUID", &f->uuid) &&
         Find(library, "nvmlDeviceGetUtilizationRates", &f->utilization) &&
         Find(library, "nvmlDeviceGetPowerUsage", &f->power_usage) &&
         Find(library, "nvmlDeviceGetEnforcedPowerLimit", &f->power_limit) &&
         Find(library, "nvmlDeviceGetMemoryInfo", &f->memory);
}

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

class LoadedNvml final : public Nvml {
 public:
  // The library must be initialised.
  LoadedNvml(Library library, const Functions& functions)
      : library_(std::move(library)), nvml_(functions) {
    unsigned count = 0;
    if (nvml_.count(&count) != kSuccess) return;
    for (unsigned i = 0; i < count; ++i) {
      Device device = nullptr;
      std::array<char, 96> uuid = {};
      if (nvml_.by_index(i, &device) != kSuccess) continue;
      if (nvml_.uuid(device, uuid.data(), uuid.size()) != kSuccess) continue;
      uuid.back() = 0;
      gpus_.emplace_back(device, uuid.data());
    }
  }
  ~LoadedNvml() override { nvml_.shut_down(); }

  bool has_gpus() const { return !gpus_.empty(); }

  std::vector<GpuReading> Read() const override {
    std::vector<GpuReading> readings;
    for (const auto& [device, uuid] : gpus_) readings.push_back(Read(device, uuid));
    return readings;
  }

 private:
  GpuReading Read(Device device, const std::string& uuid) const {
    GpuReading reading;
    reading.uuid = uuid;
    Utilization utilization = {};
    if (nvml_.utilization(device, &utilization) == kSuccess) {
      reading.utilization = utilization.gpu / 100.0;
    }
    unsigned milliwatts = 0;
    if (nvml_.power_usage(device, &milliwatts) == kSuccess) {
      reading.power_watts = milliwatts / 1000.0;
    }
    if (nvml_.power_limit(device, &milliwatts) == kSuccess) {
      reading.power_limit_watts = milliwatts / 1000.0;
    }
    Memory memory = {};
    if (nvml_.memory(device, &memory) == kSuccess) {
      reading.memory_total_bytes = static_cast<double>(memory.total);
      reading.memory_used_bytes = static_cast<double>(memory.used);
    }
    return reading;
  }

  const Library library_;
  const Functions nvml_;
  std::vector<std::pair<Device, std::string>> gpus_;  // with their UUIDs
};

}  // namespace

std::unique_ptr<Nvml> Nvml::Open(const std::string& library) {
  Library loaded(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  Functions functions = {};
  if (loaded == nullptr || !FindAll(loaded.get(), &functions)) return nullptr;
  if (functions.init() != kSuccess) return nullptr;
  auto nvml = std::make_unique<LoadedNvml>(std::move(loaded), functions);
  if (!nvml->has_gpus()) return nullptr;
  return nvml;
}

}  // namespace phasor::telemetry
