// SPDX-License-Identifier: Apache-2.0
// Bucket bounds of histograms.
#ifndef PHASOR_SERVER_TELEMETRY_BUCKETS_H_
#define PHASOR_SERVER_TELEMETRY_BUCKETS_H_

#include <prometheus/histogram.h>

namespace phasor::telemetry {

// Durations: 50 microseconds to 30 seconds.
inline prometheus::Histogram::BucketBoundaries SecondsBuckets() {
  return {5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025,
          0.05, 0.1,  0.25,   0.5,  1,    2.5,    5,    10,   30};
}

// Bytes: 1 KiB to 4 GiB, the bounds of OpenTelemetry's gRPC metrics.
inline prometheus::Histogram::BucketBoundaries BytesBuckets() {
  return {0,       1024,    2048,     4096,     16384,     65536,      262144,
          1048576, 4194304, 16777216, 67108864, 268435456, 1073741824, 4294967296};
}

// Calls and items of one run: 1 to the most calls that an engine runs together.
inline prometheus::Histogram::BucketBoundaries CallsBuckets() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256};
}

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_BUCKETS_H_
