// SPDX-License-Identifier: Apache-2.0
// Counts and times per model since the server started.
#ifndef PHASOR_SERVER_OIP_MODEL_STATISTICS_H_
#define PHASOR_SERVER_OIP_MODEL_STATISTICS_H_

#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "inference/grpc_service.pb.h"
#include "server/engine/mutex.h"
#include "server/oip/model_catalogue.h"

namespace phasor::oip {

// Where the time of one inference went.
struct InferTimes {
  absl::Duration queue;
  absl::Duration compute_input;   // parse, check, read shared memory
  absl::Duration compute_infer;   // gather and compute
  absl::Duration compute_output;  // make the answer, write shared memory
};

// Threads: any.
class StatisticsBook {
 public:
  // `model` is of the catalogue.
  void AddSuccess(const Model* model, const InferTimes& times, absl::Time now);
  void AddFailure(const Model* model, absl::Duration total);

  // Of `model`, or of all models when it is nullptr.
  inference::ModelStatisticsResponse Report(const Model* model);

 private:
  engine::Mutex mu_;
  std::map<const Model*, inference::ModelStatistics> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_MODEL_STATISTICS_H_
