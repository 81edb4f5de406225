// SPDX-License-Identifier: Apache-2.0
// Adds up counts and times. Clients divide the growth of `ns` by the growth of `count` for each
// step, so every success counts in all steps.
#include "server/oip/model_statistics.h"

#include <algorithm>
#include <cstdint>

namespace phasor::oip {
namespace {

void Add(absl::Duration time, inference::StatisticDuration* out) {
  const int64_t ns = std::max<int64_t>(absl::ToInt64Nanoseconds(time), 0);
  out->set_count(out->count() + 1);
  out->set_ns(out->ns() + static_cast<uint64_t>(ns));
}

// An entry with zeros. It has all durations, because clients expect them.
inference::ModelStatistics EmptyEntry(const std::string& model) {
  inference::ModelStatistics entry;
  entry.set_name(model);
  entry.set_version(kModelVersion);
  inference::InferStatistics* stats = entry.mutable_inference_stats();
  stats->mutable_success();
  stats->mutable_fail();
  stats->mutable_queue();
  stats->mutable_compute_input();
  stats->mutable_compute_infer();
  stats->mutable_compute_output();
  stats->mutable_cache_hit();
  stats->mutable_cache_miss();
  return entry;
}

}  // namespace

inference::ModelStatistics& StatisticsBook::EntryOf(const std::string& model) {
  const auto found = entries_.find(model);
  return found != entries_.end() ? found->second
                                 : entries_.emplace(model, EmptyEntry(model)).first->second;
}

void StatisticsBook::AddSuccess(const std::string& model, const InferTimes& times, absl::Time now) {
  MutexLock lock(&mu_);
  inference::ModelStatistics& entry = EntryOf(model);
  entry.set_last_inference(static_cast<uint64_t>(absl::ToUnixMillis(now)));
  entry.set_inference_count(entry.inference_count() + 1);
  entry.set_execution_count(entry.execution_count() + 1);
  inference::InferStatistics* stats = entry.mutable_inference_stats();
  Add(times.queue + times.compute_input + times.compute_infer + times.compute_output,
      stats->mutable_success());
  Add(times.queue, stats->mutable_queue());
  Add(times.compute_input, stats->mutable_compute_input());
  Add(times.compute_infer, stats->mutable_compute_infer());
  Add(times.compute_output, stats->mutable_compute_output());
}

void StatisticsBook::AddFailure(const std::string& model, absl::Duration total) {
  MutexLock lock(&mu_);
  Add(total, EntryOf(model).mutable_inference_stats()->mutable_fail());
}

inference::ModelStatisticsResponse StatisticsBook::Report(absl::Span<const ModelRef> models) const {
  inference::ModelStatisticsResponse response;
  MutexLock lock(&mu_);
  for (const ModelRef& model : models) {
    const auto found = entries_.find(model->name);
    *response.add_model_stats() = found == entries_.end() ? EmptyEntry(model->name) : found->second;
  }
  return response;
}

}  // namespace phasor::oip
