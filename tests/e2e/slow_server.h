// SPDX-License-Identifier: Apache-2.0
// Constants that the slow server and its test share.
#ifndef PHASOR_TESTS_E2E_SLOW_SERVER_H_
#define PHASOR_TESTS_E2E_SLOW_SERVER_H_

#include <cstdint>

#include "absl/time/time.h"

namespace phasor {

inline constexpr absl::Duration kServiceTime = absl::Milliseconds(100);
inline constexpr int kWorkers = 8;
// Calls that it can answer in a second.
inline const double kCapacity = kWorkers / absl::ToDoubleSeconds(kServiceTime);
// Of a call, each way.
inline constexpr int64_t kPayloadBytes = 64 << 10;

}  // namespace phasor

#endif  // PHASOR_TESTS_E2E_SLOW_SERVER_H_
