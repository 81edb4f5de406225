// SPDX-License-Identifier: Apache-2.0
// A backend's known answers, asked for before it serves.
#ifndef PHASOR_KERNELS_SELF_TEST_H_
#define PHASOR_KERNELS_SELF_TEST_H_

#include "absl/status/status.h"
#include "kernels/backend/backend.h"

namespace phasor {

// Encodes and rotates a little and compares the bytes with those of kNumericsVersion. INTERNAL:
// they differ, as on a broken processor or with a miscompiled kernel; else what Run returned.
absl::Status SelfTest(Backend& backend);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SELF_TEST_H_
