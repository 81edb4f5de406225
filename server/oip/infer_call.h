// SPDX-License-Identifier: Apache-2.0
// One inference from received bytes to the bytes of its answer, for single calls and streams.
#ifndef PHASOR_SERVER_OIP_INFER_CALL_H_
#define PHASOR_SERVER_OIP_INFER_CALL_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/tensor/table.h"
#include "server/engine/engine.h"
#include "server/grpc/access.h"
#include "server/oip/input_tensors.h"
#include "server/oip/model_catalogue.h"
#include "server/oip/model_statistics.h"

namespace phasor::oip {

// What all inferences of a server share. All pointers outlive them; `tables` may be nullptr.
struct InferContext {
  engine::Engine* engine = nullptr;
  const TableSource* tables = nullptr;
  memory::Stores memory = {};
  const ModelCatalogue* models = nullptr;
  StatisticsBook* statistics = nullptr;
  int64_t max_message_bytes = 0;
  int64_t max_header_bytes = 0;
};

// Who asks.
struct InferCaller {
  absl::Time deadline = absl::InfiniteFuture();
  uint64_t client = 0;              // as engine::Call::client
  std::function<bool()> cancelled;  // whether the caller is gone; asked until it is answered
  bool stream = false;
  rpc::CallerQuota quota = {};
  memory::RegionCaller regions = {};
};

struct InferAnswer {
  absl::Status status;
  grpc::ByteBuffer response;  // when OK
  std::string id;             // of the request, as far as it was read
  Permit quota_permit = {};   // to be kept until the answer has been sent
};

// Starts an inference and calls `done` exactly once, inside or later from an engine thread. Never
// blocks. `request` is emptied.
void StartInfer(const InferContext& context, grpc::ByteBuffer* request, const InferCaller& caller,
                absl::AnyInvocable<void(InferAnswer)> done);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INFER_CALL_H_
