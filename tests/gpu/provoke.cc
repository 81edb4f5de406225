// SPDX-License-Identifier: Apache-2.0
// Preloaded into phasor-server, makes its device fault: while the file named by PHASOR_PROVOKE
// exists, whoever waits for a stream first queues a kernel there that writes to address 16. The
// CUDA runtime finds the driver's functions through dlsym, which this library replaces.
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr char kProgram[] = R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry provoke() {
  .reg .u64 %address;
  .reg .u32 %value;
  mov.u64 %address, 16;
  mov.u32 %value, 1;
  st.global.u32 [%address], %value;
  ret;
}
)";

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);
using Synchronize = CUresult (*)(CUstream);

void* (*g_dlsym)(void*, const char*);
void* g_driver;
// cuGetProcAddress in its first version, which has no last parameter, and in its second.
GetProcAddress g_get_proc_address[2];
Synchronize g_synchronize;

template <typename T>
T FromDriver(const char* name) {
  return reinterpret_cast<T>(g_dlsym(g_driver, name));
}

void Provoke(CUstream stream) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  FromDriver<CUresult (*)(CUmodule*, const void*)>("cuModuleLoadData")(&module, kProgram);
  FromDriver<CUresult (*)(CUfunction*, CUmodule, const char*)>("cuModuleGetFunction")(
      &function, module, "provoke");
  FromDriver<decltype(&cuLaunchKernel)>("cuLaunchKernel")(function, 1, 1, 1, 1, 1, 1, 0, stream,
                                                          nullptr, nullptr);
}

CUresult SynchronizeAndProvoke(CUstream stream) {
  const char* const file = std::getenv("PHASOR_PROVOKE");
  if (file != nullptr && access(file, F_OK) == 0) Provoke(stream);
  return g_synchronize(stream);
}

template <int kVersion>
CUresult GetProcAddressHere(const char* name, void** function, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult* found);

// What the runtime gets in place of a function of the driver.
void* InPlaceOf(const char* name, void* function, bool second) {
  if (std::strcmp(name, "cuStreamSynchronize") == 0) {
    g_synchronize = reinterpret_cast<Synchronize>(function);
    return reinterpret_cast<void*>(&SynchronizeAndProvoke);
  }
  if (std::strncmp(name, "cuGetProcAddress", 16) != 0) return function;
  g_get_proc_address[second] = reinterpret_cast<GetProcAddress>(function);
  return second ? reinterpret_cast<void*>(&GetProcAddressHere<1>)
                : reinterpret_cast<void*>(&GetProcAddressHere<0>);
}

template <int kVersion>
CUresult GetProcAddressHere(const char* name, void** function, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult* found) {
  const CUresult result = g_get_proc_address[kVersion](name, function, version, flags, found);
  if (result != CUDA_SUCCESS || *function == nullptr) return result;
  *function = InPlaceOf(name, *function, version >= 12000);
  return result;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
  if (g_dlsym == nullptr) {
    void* found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (found == nullptr) found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    g_dlsym = reinterpret_cast<decltype(g_dlsym)>(found);
  }
  void* const function = g_dlsym(handle, name);
  if (function == nullptr || std::strncmp(name, "cu", 2) != 0) return function;
  g_driver = handle;
  return InPlaceOf(name, function, std::strcmp(name, "cuGetProcAddress_v2") == 0);
}
