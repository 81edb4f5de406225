// SPDX-License-Identifier: Apache-2.0
// What the driver makes of answers of the CUDA runtime, on a runtime that gives those that a test
// wants. cuda_driver_test checks the driver on a device.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/launch.h"

namespace {

// The runtime: the errors that calls return, and the last one of this thread.
std::map<std::string, cudaError_t>& Errors() {
  static auto& errors = *new std::map<std::string, cudaError_t>;
  return errors;
}
cudaError_t g_last = cudaSuccess;
cudaError_t Answer(const std::string& call) {
  const auto found = Errors().find(call);
  if (found == Errors().end()) return cudaSuccess;
  return g_last = found->second;
}

// What is mapped for a handle, and where the handle's own allocation begins there.
alignas(256) std::byte g_block[4096];
constexpr size_t kBegins = 1024;
int g_memory_device = 0;
const void* g_closed = nullptr;

CUresult GetRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr) {
  *base = reinterpret_cast<CUdeviceptr>(g_block);
  *bytes = sizeof g_block;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {
cudaError_t cudaGetLastError() { return std::exchange(g_last, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t) { return "name"; }
const char* cudaGetErrorString(cudaError_t) { return "words"; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return Answer("set"); }
cudaError_t cudaDeviceReset() { return Answer("reset"); }
cudaError_t cudaMemGetInfo(size_t* unused, size_t* all) {
  *unused = *all = 0;
  return Answer("info");
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(g_block);
  return Answer("create stream");
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return Answer("destroy stream"); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return Answer("synchronize"); }
cudaError_t cudaMalloc(void** memory, size_t) {
  *memory = g_block;
  return Answer("allocate");
}
cudaError_t cudaFree(void*) { return Answer("free"); }
cudaError_t cudaMallocHost(void** memory, size_t) {
  *memory = g_block;
  return Answer("pin");
}
cudaError_t cudaFreeHost(void*) { return Answer("unpin"); }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return Answer("copy");
}
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t, unsigned) {
  *memory = g_block + kBegins;
  return Answer("open");
}
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  g_closed = memory;
  return Answer("close");
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->type = cudaMemoryTypeDevice;
  attributes->device = g_memory_device;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = reinterpret_cast<void*>(&GetRange);
  *found = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
}

namespace phasor::cuda {

int CanLaunch(int) { return cudaSuccess; }
int LaunchKernel(const KernelId&, const Batch&, void*) { return Answer("launch"); }

namespace {

class DriverCallsTest : public ::testing::Test {
 protected:
  DriverCallsTest() {
    Errors().clear();
    g_last = cudaSuccess;
    g_memory_device = 0;
    g_closed = nullptr;
  }
  const std::unique_ptr<Driver> driver_ = *OpenDevice();
};

// Otherwise the next launch would take it for its own.
TEST_F(DriverCallsTest, GivingBackLeavesNoErrorBehind) {
  const Stream stream = *driver_->CreateStream();
  for (const std::string call : {"free", "unpin", "close", "destroy stream"}) {
    Errors()[call] = cudaErrorInvalidValue;
  }
  driver_->Free(g_block);
  EXPECT_EQ(g_last, cudaSuccess) << "after Free";
  driver_->FreePinned(g_block);
  EXPECT_EQ(g_last, cudaSuccess) << "after FreePinned";
  driver_->CloseIpc(*driver_->OpenIpc({}));
  EXPECT_EQ(g_last, cudaSuccess) << "after CloseIpc";
  driver_->DestroyStream(stream);
  EXPECT_EQ(g_last, cudaSuccess) << "after DestroyStream";
}

// The exporter's small allocation is part of a larger block, and the block is what is mapped.
TEST_F(DriverCallsTest, AMappingBeginsWhereItsHandleWasOpened) {
  const IpcMapping mapping = *driver_->OpenIpc({});
  EXPECT_EQ(mapping.opened, g_block + kBegins);
  EXPECT_EQ(mapping.bytes, static_cast<int64_t>(sizeof g_block - kBegins))
      << "as much as is mapped from there on";
}

// Else its addresses would be taken for this device's.
TEST_F(DriverCallsTest, MemoryOfAnotherDeviceIsRefusedAndClosed) {
  g_memory_device = 1;
  EXPECT_EQ(driver_->OpenIpc({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(g_closed, g_block + kBegins);
  EXPECT_EQ(g_last, cudaSuccess);
}

TEST_F(DriverCallsTest, AHandleThatCannotBeOpenedIsALossOnlyIfEveryCallFails) {
  Errors() = {{"open", cudaErrorDeviceUninitialized}};
  EXPECT_EQ(driver_->OpenIpc({}).status().code(), absl::StatusCode::kInvalidArgument);
  Errors()["info"] = cudaErrorIllegalAddress;
  EXPECT_EQ(driver_->OpenIpc({}).status().code(), absl::StatusCode::kUnavailable);
  Errors() = {{"open", cudaErrorMemoryAllocation}};
  EXPECT_EQ(driver_->OpenIpc({}).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(g_last, cudaSuccess);
  EXPECT_EQ(g_closed, nullptr);
}

TEST_F(DriverCallsTest, AResetIsJudgedByTheFirstCallInTheNewContext) {
  Errors()["reset"] = cudaErrorIllegalAddress;  // of the old context
  EXPECT_TRUE(driver_->Reset().ok());
  EXPECT_EQ(g_last, cudaSuccess);
  for (const std::string call : {"set", "free"}) {
    Errors() = {{call, cudaErrorIllegalAddress}};
    EXPECT_EQ(driver_->Reset().code(), absl::StatusCode::kUnavailable) << call;
  }
}

TEST_F(DriverCallsTest, ErrorsAreOfTheCallTheDeviceOrItsMemory) {
  const Stream stream = *driver_->CreateStream();
  for (const auto& [error, code] :
       {std::pair(cudaErrorInvalidValue, absl::StatusCode::kInternal),
        std::pair(cudaErrorMemoryAllocation, absl::StatusCode::kResourceExhausted),
        std::pair(cudaErrorIllegalAddress, absl::StatusCode::kUnavailable)}) {
    Errors() = {{"synchronize", error}, {"copy", error}, {"allocate", error}, {"launch", error}};
    EXPECT_EQ(driver_->Synchronize(stream).code(), code);
    EXPECT_EQ(driver_->CopyToHost(g_block, g_block, 1, stream).code(), code);
    EXPECT_EQ(driver_->Allocate(1).status().code(), code);
    EXPECT_EQ(driver_->Run({}, stream).code(), code);
    EXPECT_EQ(g_last, cudaSuccess);
  }
}

}  // namespace
}  // namespace phasor::cuda
