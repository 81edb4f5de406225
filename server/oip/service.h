// SPDX-License-Identifier: Apache-2.0
// inference.GRPCInferenceService: the Open Inference Protocol with Triton's extensions.
#ifndef PHASOR_SERVER_OIP_SERVICE_H_
#define PHASOR_SERVER_OIP_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "inference/grpc_service.grpc.pb.h"
#include "server/memory/binding.h"
#include "server/oip/infer_call.h"
#include "server/oip/infer_stream.h"
#include "server/oip/model_statistics.h"

namespace phasor::oip {

// Settings of the service.
struct InferenceServiceOptions {
  std::string version;  // the server's version
  int64_t max_message_bytes = 0;
  int64_t max_header_bytes = 0;
  const tables::TableStore* tables = nullptr;  // must outlive the service; nullptr: none are kept
  memory::Stores memory = {};                  // must outlive the service
  absl::Duration stream_idle_timeout = absl::ZeroDuration();  // 0: no limit
  double traced_ratio = 0;  // the part of all calls of which spans are exported
};

// Methods with tensors take the received bytes without parsing them. The methods are listed here
// because the generated CallbackService would give the stream another reactor.
using Rpcs = inference::GRPCInferenceService;
using WithInference = Rpcs::WithRawCallbackMethod_ModelInfer<
    Rpcs::WithRawCallbackMethod_ModelStreamInfer<Rpcs::Service>>;
using WithHealth = Rpcs::WithCallbackMethod_ServerLive<
    Rpcs::WithCallbackMethod_ServerReady<Rpcs::WithCallbackMethod_ModelReady<WithInference>>>;
using WithMetadata = Rpcs::WithCallbackMethod_ServerMetadata<Rpcs::WithCallbackMethod_ModelMetadata<
    Rpcs::WithCallbackMethod_ModelConfig<Rpcs::WithCallbackMethod_ModelStatistics<WithHealth>>>>;
using WithRepository =
    Rpcs::WithCallbackMethod_RepositoryIndex<Rpcs::WithCallbackMethod_RepositoryModelLoad<
        Rpcs::WithCallbackMethod_RepositoryModelUnload<WithMetadata>>>;
using WithHostMemory = Rpcs::WithCallbackMethod_SystemSharedMemoryStatus<
    Rpcs::WithCallbackMethod_SystemSharedMemoryRegister<
        Rpcs::WithCallbackMethod_SystemSharedMemoryUnregister<WithRepository>>>;
using WithCudaMemory = Rpcs::WithCallbackMethod_CudaSharedMemoryStatus<
    Rpcs::WithCallbackMethod_CudaSharedMemoryRegister<
        Rpcs::WithCallbackMethod_CudaSharedMemoryUnregister<WithHostMemory>>>;
using InferenceServiceBase =
    Rpcs::WithCallbackMethod_TraceSetting<Rpcs::WithCallbackMethod_LogSettings<WithCudaMemory>>;

// Implements the service. Threads: gRPC calls the methods from its own threads, many at once. No
// method blocks.
class InferenceService final : public InferenceServiceBase {
 public:
  // `engine` must outlive the service.
  InferenceService(engine::Engine* engine, InferenceServiceOptions options);

  // From now on, these encoders are models besides the presets, for requests not checked yet.
  void SetEncoders(const EncoderSet& encoders) { models_.Replace(encoders); }
  // Sets what ServerReady and ModelReady answer.
  void SetReady(bool ready) { ready_.store(ready, std::memory_order_relaxed); }
  // Ends all streams after the requests under way.
  void EndStreams() { streams_.End(); }

  // The statistics of all models, for metrics.
  google::protobuf::RepeatedPtrField<inference::ModelStatistics> statistics() {
    return statistics_.Report(models_.Get()->models()).model_stats();
  }

 private:
  using Reactor = grpc::ServerUnaryReactor;
  using Context = grpc::CallbackServerContext;

  Reactor* ServerLive(Context*, const inference::ServerLiveRequest*,
                      inference::ServerLiveResponse*) override;
  Reactor* ServerReady(Context*, const inference::ServerReadyRequest*,
                       inference::ServerReadyResponse*) override;
  Reactor* ModelReady(Context*, const inference::ModelReadyRequest*,
                      inference::ModelReadyResponse*) override;
  Reactor* ServerMetadata(Context*, const inference::ServerMetadataRequest*,
                          inference::ServerMetadataResponse*) override;
  Reactor* ModelMetadata(Context*, const inference::ModelMetadataRequest*,
                         inference::ModelMetadataResponse*) override;
  Reactor* ModelInfer(Context*, const grpc::ByteBuffer*, grpc::ByteBuffer*) override;
  InferStreamReactor* ModelStreamInfer(Context*) override;
  Reactor* ModelConfig(Context*, const inference::ModelConfigRequest*,
                       inference::ModelConfigResponse*) override;
  Reactor* ModelStatistics(Context*, const inference::ModelStatisticsRequest*,
                           inference::ModelStatisticsResponse*) override;
  Reactor* RepositoryIndex(Context*, const inference::RepositoryIndexRequest*,
                           inference::RepositoryIndexResponse*) override;
  Reactor* RepositoryModelLoad(Context*, const inference::RepositoryModelLoadRequest*,
                               inference::RepositoryModelLoadResponse*) override;
  Reactor* RepositoryModelUnload(Context*, const inference::RepositoryModelUnloadRequest*,
                                 inference::RepositoryModelUnloadResponse*) override;
  Reactor* SystemSharedMemoryStatus(Context*, const inference::SystemSharedMemoryStatusRequest*,
                                    inference::SystemSharedMemoryStatusResponse*) override;
  Reactor* SystemSharedMemoryRegister(Context*, const inference::SystemSharedMemoryRegisterRequest*,
                                      inference::SystemSharedMemoryRegisterResponse*) override;
  Reactor* SystemSharedMemoryUnregister(Context*,
                                        const inference::SystemSharedMemoryUnregisterRequest*,
                                        inference::SystemSharedMemoryUnregisterResponse*) override;
  Reactor* CudaSharedMemoryStatus(Context*, const inference::CudaSharedMemoryStatusRequest*,
                                  inference::CudaSharedMemoryStatusResponse*) override;
  Reactor* CudaSharedMemoryRegister(Context*, const inference::CudaSharedMemoryRegisterRequest*,
                                    inference::CudaSharedMemoryRegisterResponse*) override;
  Reactor* CudaSharedMemoryUnregister(Context*, const inference::CudaSharedMemoryUnregisterRequest*,
                                      inference::CudaSharedMemoryUnregisterResponse*) override;
  Reactor* TraceSetting(Context*, const inference::TraceSettingRequest*,
                        inference::TraceSettingResponse*) override;
  Reactor* LogSettings(Context*, const inference::LogSettingsRequest*,
                       inference::LogSettingsResponse*) override;

  const InferenceServiceOptions options_;
  std::atomic<bool> ready_ = true;
  ModelCatalogue models_;
  StatisticsBook statistics_;
  memory::RegionStore& regions_;
  const InferContext infer_;
  InferStreams streams_;
  TaskThread table_reads_;
};

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_SERVICE_H_
