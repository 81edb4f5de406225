// SPDX-License-Identifier: Apache-2.0
// The part of Triton's interface for backends that rope_backend.cc uses, version 1.19. Triton
// Inference Server 2.51.0 has that version. Its headers come neither with nvidia-pytriton nor with
// Debian, so the names and values are declared here as tritonbackend.h and tritonserver.h of the
// branch r24.10 of github.com/triton-inference-server/core have them. The functions are in
// libtritonserver.so, or in the tritonserver that loads the backend.
//
// A function that returns an error object passes it to the caller. nullptr means success.
#ifndef PHASOR_BENCH_TRITON_BACKEND_API_H_
#define PHASOR_BENCH_TRITON_BACKEND_API_H_

#include <cstdint>

extern "C" {

struct TRITONSERVER_Error;
struct TRITONBACKEND_Backend;
struct TRITONBACKEND_Input;
struct TRITONBACKEND_ModelInstance;
struct TRITONBACKEND_Output;
struct TRITONBACKEND_Request;
struct TRITONBACKEND_Response;

inline constexpr uint32_t kTritonBackendApiMajor = 1;
inline constexpr uint32_t kTritonBackendApiMinor = 19;

// Only the values that are used. The types are as large as the enums of C.
enum TRITONSERVER_DataType : unsigned { TRITONSERVER_TYPE_INT64 = 9, TRITONSERVER_TYPE_FP32 = 11 };
enum TRITONSERVER_MemoryType : unsigned {
  TRITONSERVER_MEMORY_CPU = 0,
  TRITONSERVER_MEMORY_CPU_PINNED = 1,
  TRITONSERVER_MEMORY_GPU = 2,
};
enum TRITONSERVER_Error_Code : unsigned {
  TRITONSERVER_ERROR_INTERNAL = 1,
  TRITONSERVER_ERROR_INVALID_ARG = 3,
  TRITONSERVER_ERROR_UNSUPPORTED = 5,
};
inline constexpr uint32_t TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1;
inline constexpr uint32_t TRITONSERVER_REQUEST_RELEASE_ALL = 1;

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* message);
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error);

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor);

// The input belongs to the request, and its name, shape and buffers to the input. Any output may
// be nullptr.
TRITONSERVER_Error* TRITONBACKEND_RequestInput(TRITONBACKEND_Request* request, const char* name,
                                               TRITONBACKEND_Input** input);
TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* datatype,
                                                  const int64_t** shape, uint32_t* rank,
                                                  uint64_t* bytes, uint32_t* buffers);
// The memory type and its device are what the caller prefers, and then what the buffer has.
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, uint32_t index,
                                              const void** buffer, uint64_t* bytes,
                                              TRITONSERVER_MemoryType* memory, int64_t* device);

// A response belongs to the caller until it is sent. Sending does not take the error.
TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response,
                                              TRITONBACKEND_Request* request);
TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response,
                                                 TRITONBACKEND_Output** output, const char* name,
                                                 TRITONSERVER_DataType datatype,
                                                 const int64_t* shape, uint32_t rank);
TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer,
                                               uint64_t bytes, TRITONSERVER_MemoryType* memory,
                                               int64_t* device);
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response, uint32_t flags,
                                               TRITONSERVER_Error* error);
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t flags);

// Times are nanoseconds of the steady clock.
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, bool success,
    uint64_t execute_start, uint64_t compute_start, uint64_t compute_end, uint64_t execute_end);
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, uint64_t batch_size, uint64_t execute_start,
    uint64_t compute_start, uint64_t compute_end, uint64_t execute_end);

// What Triton looks for in the library of a backend. Execute owns the requests if it succeeds.
TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend);
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t count);

}  // extern "C"

#endif  // PHASOR_BENCH_TRITON_BACKEND_API_H_
