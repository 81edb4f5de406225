// SPDX-License-Identifier: Apache-2.0
// What the parts of a server take from its options. Threads: pure functions.
#ifndef PHASOR_SERVER_PART_OPTIONS_H_
#define PHASOR_SERVER_PART_OPTIONS_H_

#include <memory>

#include "kernels/tensor/table.h"
#include "server/api/service.h"
#include "server/config/options.h"
#include "server/engine/engine.h"
#include "server/memory/binding.h"
#include "server/memory/device_region_store.h"
#include "server/memory/region_store.h"
#include "server/net/connections.h"
#include "server/oip/service.h"
#include "server/tables/table_store.h"
#include "server/trace/trace_options.h"

namespace phasor {

// How many of the `usable` cores count for the threads that receive calls, and for heaps.
int CoresOf(const ServerOptions& o, int usable);
// What is passed beside the options must outlive the part.
engine::EngineOptions EngineOptionsOf(const ServerOptions& o, engine::Observer* observer);
rpc::ServiceOptions ServiceOptionsOf(const ServerOptions& o, const tables::TableStore* tables,
                                     const rpc::EncoderCatalogue* encoders, memory::Stores memory);
memory::RegionStoreOptions RegionStoreOptionsOf(const ServerOptions& o,
                                                const std::shared_ptr<memory::RegionNames>& names,
                                                const Connections& connections);
memory::DeviceRegionOptions DeviceRegionOptionsOf(const ServerOptions& o,
                                                  const std::shared_ptr<memory::RegionNames>& names,
                                                  const Connections& connections);
oip::InferenceServiceOptions InferenceOptionsOf(const ServerOptions& o,
                                                const tables::TableStore* tables,
                                                memory::Stores memory,
                                                const trace::TraceOptions& trace);
tables::TableStoreOptions TableStoreOptionsOf(const ServerOptions& o);

}  // namespace phasor

#endif  // PHASOR_SERVER_PART_OPTIONS_H_
