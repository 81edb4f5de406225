// SPDX-License-Identifier: Apache-2.0
// Load: what calls of late were like.
#ifndef PHASOR_SERVER_ENGINE_LOAD_H_
#define PHASOR_SERVER_ENGINE_LOAD_H_

#include <cstdint>

#include "server/engine/engine.h"

namespace phasor::engine {

enum class Load : uint8_t {
  kNone,   // there were none
  kSmall,  // small on average, or not kLarge, and with small messages: tensors are in shared memory
  kLarge,  // all of them large, on average up to a limit
  kMixed,  // others
};

// The runs of an engine between two states of it. `most_bytes`: the limit of kLarge, in bytes as
// Call::inline_bytes counts them. Threads: pure function.
Load LoadBetween(const EngineStats& before, const EngineStats& now, int64_t most_bytes);

}  // namespace phasor::engine

#endif  // PHASOR_SERVER_ENGINE_LOAD_H_
