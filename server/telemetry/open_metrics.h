// SPDX-License-Identifier: Apache-2.0
// The metrics page in the OpenMetrics format, the only one that Prometheus takes exemplars from:
// https://prometheus.io/docs/specs/om/open_metrics_spec/.
#ifndef PHASOR_SERVER_TELEMETRY_OPEN_METRICS_H_
#define PHASOR_SERVER_TELEMETRY_OPEN_METRICS_H_

#include <prometheus/metric_family.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace phasor::telemetry {

// A call that a bucket of a histogram counts, by its trace. A plain value.
struct Exemplar {
  std::string trace_id;  // 32 hexadecimal digits; empty: none
  double value = 0;
  absl::Time time;
};

// The exemplar of the bucket with this index; one without a trace id if there is none.
using FindExemplar = absl::FunctionRef<Exemplar(
    const prometheus::MetricFamily& family, const prometheus::ClientMetric& metric, size_t bucket)>;

// Whether a reader whose HTTP header Accept has this value takes OpenMetrics.
bool TakesOpenMetrics(std::string_view accept);

// The families as one page. Numbers and labels are those of the text format, so that series stay
// the same whichever format is read.
std::string OpenMetricsText(absl::Span<const prometheus::MetricFamily> families, FindExemplar find);

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_OPEN_METRICS_H_
