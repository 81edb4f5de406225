// SPDX-License-Identifier: Apache-2.0
#include "server/part_options.h"

#include <algorithm>
#include <functional>
#include <string>

namespace phasor {
namespace {

// All callers over Unix sockets are one connection, which does not close.
std::function<bool(const std::string&)> IsOpenIn(const Connections& connections) {
  return [&connections](const std::string& peer) {
    return peer.starts_with("unix:") || connections.IsOpen(peer);
  };
}

}  // namespace

int CoresOf(const ServerOptions& o, int usable) {
  return o.threads > 0 ? std::min(o.threads, usable) : usable;
}

engine::EngineOptions EngineOptionsOf(const ServerOptions& o, engine::Observer* observer) {
  engine::EngineOptions options;
  options.workers = o.threads;
  options.max_inflight_bytes = o.max_inflight_bytes;
  options.inline_bytes = o.inline_bytes;
  options.plan_cache_bytes = o.plan_cache_bytes;
  options.pool_bytes = o.pool_bytes;
  options.observer = observer;
  return options;
}

rpc::ServiceOptions ServiceOptionsOf(const ServerOptions& o, const tables::TableStore* tables,
                                     const rpc::EncoderCatalogue* encoders, memory::Stores memory) {
  rpc::ServiceOptions options;
  options.version = PHASOR_VERSION;
  options.max_message_bytes = o.max_message_bytes;
  options.max_header_bytes = o.max_header_bytes;
  options.max_inflight_bytes = o.max_inflight_bytes;
  options.inline_bytes = o.inline_bytes;
  options.max_batch_items = o.max_batch_items;
  options.tables = tables;
  options.lease_socket = o.lease_socket;
  options.stream_idle_timeout = o.stream_idle_timeout;
  options.encoders = encoders;
  options.memory = memory;
  if (o.lease_socket.empty()) options.memory.leases = nullptr;
  return options;
}

memory::RegionStoreOptions RegionStoreOptionsOf(const ServerOptions& o,
                                                const std::shared_ptr<memory::RegionNames>& names,
                                                const Connections& connections) {
  memory::RegionStoreOptions options;
  options.enabled = o.shared_memory;
  options.names = names;
  options.owner_limits = {o.max_region_bytes, o.max_regions};
  options.lease = o.shared_memory_lease;
  options.is_open = IsOpenIn(connections);
  return options;
}

memory::DeviceRegionOptions DeviceRegionOptionsOf(const ServerOptions& o,
                                                  const std::shared_ptr<memory::RegionNames>& names,
                                                  const Connections& connections) {
  memory::DeviceRegionOptions options;
  options.enabled = o.shared_memory;
  options.names = names;
  options.max_regions = o.max_regions;
  options.lease = o.shared_memory_lease;
  options.is_open = IsOpenIn(connections);
  return options;
}

oip::InferenceServiceOptions InferenceOptionsOf(const ServerOptions& o,
                                                const tables::TableStore* tables,
                                                memory::Stores memory,
                                                const trace::TraceOptions& trace) {
  oip::InferenceServiceOptions options;
  options.stream_idle_timeout = o.stream_idle_timeout;
  options.version = PHASOR_VERSION;
  options.max_message_bytes = o.max_message_bytes;
  options.max_header_bytes = o.max_header_bytes;
  options.tables = tables;
  options.memory = memory;
  options.memory.leases = nullptr;  // the protocol has only names
  options.traced_ratio = trace.endpoint.empty() ? 0 : trace.ratio;
  return options;
}

tables::TableStoreOptions TableStoreOptionsOf(const ServerOptions& o) {
  return {.directory = o.tables_dir,
          .max_table_bytes = o.max_table_bytes,
          .max_tables_bytes = o.max_tables_bytes,
          .rescan_interval = o.tables_rescan_interval};
}

}  // namespace phasor
