// SPDX-License-Identifier: Apache-2.0
// A backend of Triton Inference Server that rotates as rope_models.py does: half-split rotary
// embeddings of 32 heads of 128 in float32, with a table of cosines and sines made when Triton
// loads it. triton_servers.py compiles it, with OpenMP.
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include "bench/triton/backend_api.h"

namespace {

constexpr int64_t kPositions = 131072;
constexpr int64_t kHeads = 32, kHalf = 64, kWidth = 2 * kHalf;
constexpr double kTheta = 10000;
// With fewer tokens, other threads cost more than they save.
constexpr int64_t kTokensForThreads = 64;

#define RETURN_IF_ERROR(call) \
  if (TRITONSERVER_Error* error = (call)) return error

TRITONSERVER_Error* Invalid(const char* message) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, message);
}

void Drop(TRITONSERVER_Error* error) {
  if (error != nullptr) TRITONSERVER_ErrorDelete(error);
}

// Memory that cannot be had is an error like all others.
template <typename Call>
TRITONSERVER_Error* Caught(Call call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  }
}

uint64_t Now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// A row for each position: 64 cosines, then 64 sines.
std::vector<float> MakeTable() {
  std::vector<float> table(kPositions * kWidth);
  for (int64_t position = 0; position < kPositions; ++position) {
    for (int64_t i = 0; i < kHalf; ++i) {
      const double angle = position * std::pow(kTheta, -static_cast<double>(i) / kHalf);
      table[position * kWidth + i] = static_cast<float>(std::cos(angle));
      table[position * kWidth + kHalf + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

// The first call makes the table. That is the one of TRITONBACKEND_Initialize.
const float* Table() {
  static const std::vector<float> table = MakeTable();
  return table.data();
}

// An input in one piece. `gathered` has the bytes if Triton has them in several buffers.
template <typename T>
struct Tensor {
  const T* values = nullptr;
  const int64_t* shape = nullptr;
  int64_t count = 0;
  std::unique_ptr<T[]> gathered;
};

template <typename T>
TRITONSERVER_Error* Read(TRITONBACKEND_Request* request, const char* name,
                         TRITONSERVER_DataType wanted_type, uint32_t wanted_rank,
                         Tensor<T>& tensor) {
  TRITONBACKEND_Input* input;
  TRITONSERVER_DataType type;
  uint32_t rank, buffers;
  uint64_t total;
  RETURN_IF_ERROR(TRITONBACKEND_RequestInput(request, name, &input));
  RETURN_IF_ERROR(
      TRITONBACKEND_InputProperties(input, nullptr, &type, &tensor.shape, &rank, &total, &buffers));
  if (type != wanted_type || rank != wanted_rank || total % sizeof(T) != 0) {
    return Invalid("an input has a wrong datatype, rank or size");
  }
  tensor.count = static_cast<int64_t>(total / sizeof(T));
  uint64_t done = 0;
  for (uint32_t i = 0; i < buffers; ++i) {
    const void* buffer = nullptr;
    uint64_t bytes = 0;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t device = 0;
    RETURN_IF_ERROR(TRITONBACKEND_InputBuffer(input, i, &buffer, &bytes, &memory, &device));
    if (memory == TRITONSERVER_MEMORY_GPU) return Invalid("an input is in a GPU's memory");
    if (bytes > total - done) return Invalid("an input has more bytes than it says");
    const bool aligned = reinterpret_cast<uintptr_t>(buffer) % alignof(T) == 0;
    if (bytes == total && aligned) {
      tensor.values = static_cast<const T*>(buffer);
      return nullptr;
    }
    if (!tensor.gathered) tensor.gathered = std::make_unique_for_overwrite<T[]>(tensor.count);
    if (bytes > 0)
      std::memcpy(reinterpret_cast<std::byte*>(tensor.gathered.get()) + done, buffer, bytes);
    done += bytes;
  }
  if (done != total) return Invalid("an input has fewer bytes than it says");
  tensor.values = tensor.gathered.get();
  return nullptr;
}

// `q` and `out` may be the same memory: no element is read after another one was written over it.
void RotateToken(const float* q, const float* row, float* out) {
  for (int64_t head = 0; head < kHeads; ++head, q += kWidth, out += kWidth) {
#pragma GCC ivdep
    for (int64_t i = 0; i < kHalf; ++i) {
      const float a = q[i], b = q[kHalf + i], cosine = row[i], sine = row[kHalf + i];
      out[i] = a * cosine - b * sine;
      out[kHalf + i] = b * cosine + a * sine;
    }
  }
}

TRITONSERVER_Error* Rotate(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response) {
  Tensor<int64_t> positions;
  Tensor<float> q;
  RETURN_IF_ERROR(Read(request, "POSITIONS", TRITONSERVER_TYPE_INT64, 1, positions));
  RETURN_IF_ERROR(Read(request, "Q", TRITONSERVER_TYPE_FP32, 3, q));
  const int64_t tokens = positions.count;
  if (q.shape[0] != tokens || q.shape[1] != kHeads || q.shape[2] != kWidth ||
      q.count != tokens * kHeads * kWidth) {
    return Invalid("Q must have 32 heads of 128 for each position");
  }
  for (int64_t t = 0; t < tokens; ++t) {
    if (positions.values[t] < 0 || positions.values[t] >= kPositions) {
      return Invalid("a position is not in the table, which has 131072");
    }
  }
  TRITONBACKEND_Output* output;
  void* buffer = nullptr;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
  int64_t device = 0;
  RETURN_IF_ERROR(
      TRITONBACKEND_ResponseOutput(response, &output, "Q_OUT", TRITONSERVER_TYPE_FP32, q.shape, 3));
  RETURN_IF_ERROR(
      TRITONBACKEND_OutputBuffer(output, &buffer, q.count * sizeof(float), &memory, &device));
  if (memory == TRITONSERVER_MEMORY_GPU) return Invalid("Q_OUT is in a GPU's memory");
  if (reinterpret_cast<uintptr_t>(buffer) % alignof(float) != 0)
    return Invalid("Q_OUT is not aligned");
  const float* const table = Table();
  float* const out = static_cast<float*>(buffer);
#pragma omp parallel for if (tokens >= kTokensForThreads)
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t first = t * kHeads * kWidth;
    RotateToken(q.values + first, table + positions.values[t] * kWidth, out + first);
  }
  return nullptr;
}

// Answers the request and releases it, whatever goes wrong.
void Serve(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request) {
  const uint64_t start = Now();
  TRITONBACKEND_Response* response = nullptr;
  TRITONSERVER_Error* error = TRITONBACKEND_ResponseNew(&response, request);
  if (error == nullptr) error = Caught([&] { return Rotate(request, response); });
  const uint64_t end = Now();
  if (response != nullptr) {
    Drop(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  }
  Drop(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, error == nullptr, start,
                                                   start, end, Now()));
  Drop(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  Drop(error);
}

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  uint32_t major, minor;
  RETURN_IF_ERROR(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major != kTritonBackendApiMajor || minor < kTritonBackendApiMinor) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED,
                                 "Triton's version of the interface is not that of this backend");
  }
  return Caught([]() -> TRITONSERVER_Error* {
    Table();
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t count) {
  const uint64_t start = Now();
  for (uint32_t i = 0; i < count; ++i) Serve(instance, requests[i]);
  const uint64_t end = Now();
  Drop(TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, count, start, start, end, end));
  return nullptr;
}
