// SPDX-License-Identifier: Apache-2.0
// Counts and times of each model since the server started.
#ifndef PHASOR_SERVER_OIP_MODEL_STATISTICS_H_
#define PHASOR_SERVER_OIP_MODEL_STATISTICS_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "inference/grpc_service.pb.h"
#include "server/base/mutex.h"
#include "server/oip/model_catalogue.h"

namespace phasor::oip {

// How long each step of an inference took.
struct InferTimes {
  absl::Duration queue;
  absl::Duration compute_input;   // parse, check, read shared memory
  absl::Duration compute_infer;   // gather and compute
  absl::Duration compute_output;  // make the answer, write shared memory
};

// Adds up inferences per model and reports them. Threads: any.
class StatisticsBook {
 public:
  void AddSuccess(const std::string& model, const InferTimes& times, absl::Time now);
  void AddFailure(const std::string& model, absl::Duration total);

  // The statistics of these models, in this order; zeros for one without inferences.
  inference::ModelStatisticsResponse Report(absl::Span<const ModelRef> models) const;

 private:
  inference::ModelStatistics& EntryOf(const std::string& model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  // By name, so that an encoder that a reload changes keeps its counts.
  std::map<std::string, inference::ModelStatistics> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace phasor::oip

#endif  // PHASOR_SERVER_OIP_MODEL_STATISTICS_H_
