// SPDX-License-Identifier: Apache-2.0
// Snapshot: the state of a server at one moment, for metrics that are read and not counted.
#ifndef PHASOR_SERVER_TELEMETRY_SNAPSHOT_H_
#define PHASOR_SERVER_TELEMETRY_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/backend/backend.h"
#include "server/engine/engine.h"

namespace phasor::telemetry {

// Connections now open, and counts since the start.
struct ConnectionCounts {
  int64_t open = 0;
  int64_t accepted = 0;
  int64_t refused = 0;
  int64_t starved = 0;
};

// Calls and connections refused since the start.
struct Refusals {
  int64_t unauthenticated = 0;
  int64_t permission_denied = 0;
  int64_t tls_handshakes = 0;  // of the whole process
};

// How many of something there are, and their bytes.
struct Holding {
  int64_t count = 0;
  int64_t bytes = 0;
};

// A model of the Open Inference Protocol that was used.
struct ModelCounts {
  std::string model;
  std::string version;
  int64_t succeeded = 0;
  int64_t failed = 0;
  absl::Duration request;
  absl::Duration queue;
  absl::Duration compute_input;
  absl::Duration compute_infer;
  absl::Duration compute_output;
};

// Facts that do not change while a server runs.
struct BuildInfo {
  std::string version;
  int numerics_version = 0;
  std::string grpc_version;
  std::string backend;
  std::string cpu_target;
};

// One GPU.
struct DeviceSnapshot {
  int number = 0;
  DeviceCounts counts;
  int64_t losses = 0;
  int64_t revivals = 0;
};

inline std::vector<DeviceSnapshot> SnapshotsOf(const DeviceList& devices) {
  std::vector<DeviceSnapshot> snapshots;
  for (const DevicePort* const device : devices) {
    const DeviceState state = device->device_state();
    snapshots.push_back(
        {device->device_number(), device->device_counts(), state.losses, state.revivals});
  }
  return snapshots;
}

// The backend that computes.
struct BackendCounts {
  std::string name;
  int64_t jobs = 0;                     // items of calls
  std::vector<DeviceSnapshot> devices;  // empty: it has none
};

struct Snapshot {
  BuildInfo build;
  bool serving = false;
  int64_t inflight_limit_bytes = 0;
  engine::EngineStats engine;
  BackendCounts backend;
  ConnectionCounts connections;
  Refusals refusals;
  Holding leases;
  Holding regions;
  Holding device_regions;
  Holding tables;
  std::vector<ModelCounts> models;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_SNAPSHOT_H_
