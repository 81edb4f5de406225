// SPDX-License-Identifier: Apache-2.0
// An inference from the received bytes to the response bytes, for unary calls and streams.
#ifndef PHASOR_SERVER_OIP_INFER_CALL_H_
#define PHASOR_SERVER_OIP_INFER_CALL_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/task_thread.h"
#include "server/engine/engine.h"
#include "server/grpc/access.h"
#include "server/oip/input_tensors.h"
#include "server/oip/model_catalogue.h"
#include "server/oip/model_statistics.h"
#include "server/tables/table_store.h"

namespace phasor::oip {

// What all inferences of a server share. All pointers must outlive them; `tables` may be nullptr.
// Tables that are not in memory are read in `table_reads`.
struct InferContext {
  engine::Engine* engine = nullptr;
  const tables::TableStore* tables = nullptr;
  memory::Stores memory = {};
  const ModelCatalogue* models = nullptr;
  StatisticsBook* statistics = nullptr;
  int64_t max_message_bytes = 0;
  int64_t max_header_bytes = 0;
  TaskThread* table_reads = nullptr;
};

// The caller of an inference.
struct InferCaller {
  absl::Time deadline = absl::InfiniteFuture();
  uint64_t client = 0;  // as engine::Call::client
  // Whether the caller is gone; may be asked until the call is answered.
  std::function<bool()> cancelled;
  bool stream = false;
  rpc::CallerQuota quota = {};
  memory::RegionCaller regions = {};
};

// The outcome of an inference.
struct InferAnswer {
  absl::Status status;
  grpc::ByteBuffer response;  // set when the status is OK
  std::string id;             // of the request; empty if reading it failed before the id
  Permit quota_permit = {};   // to be kept until the answer has been sent
  engine::Phases phases = {};
};

// Starts an inference and calls `done` exactly once: inside this function, or later from an engine
// thread or from `table_reads`. Never blocks. Empties `request`.
void StartInfer(const InferContext& context, grpc::ByteBuffer* request, const InferCaller& caller,
                absl::AnyInvocable<void(InferAnswer)> done);

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_INFER_CALL_H_
