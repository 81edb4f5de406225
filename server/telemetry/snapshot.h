// SPDX-License-Identifier: Apache-2.0
// Snapshot: the state of a server at one moment, for metrics that are read and not counted.
#ifndef PHASOR_SERVER_TELEMETRY_SNAPSHOT_H_
#define PHASOR_SERVER_TELEMETRY_SNAPSHOT_H_

#include <cstdint>
#include <string>

#include "inference/grpc_service.pb.h"
#include "kernels/backend/backend.h"
#include "server/engine/engine.h"
#include "server/memory/owner_quotas.h"
#include "server/net/listener.h"

namespace phasor::telemetry {

// What was refused since the start.
struct Refusals {
  int64_t unauthenticated = 0;
  int64_t permission_denied = 0;
  int64_t tls_handshakes_failed = 0;  // of all servers in this process
};

// How many of something there are, and their bytes.
using Holding = memory::OwnerQuotas::Stats;

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

struct Snapshot {
  BuildInfo build;
  bool serving = false;
  int64_t inflight_limit_bytes = 0;
  engine::EngineStats engine;
  std::vector<DeviceSnapshot> devices;  // of the backend; empty: it has none
  ListenerStats connections;
  Refusals refusals;
  Holding leases;
  Holding regions;
  Holding device_regions;
  Holding tables;
  int64_t spans_exported = 0;
  int64_t spans_dropped = 0;
  // Of the models of the Open Inference Protocol.
  google::protobuf::RepeatedPtrField<inference::ModelStatistics> models;
};

}  // namespace phasor::telemetry

#endif  // PHASOR_SERVER_TELEMETRY_SNAPSHOT_H_
