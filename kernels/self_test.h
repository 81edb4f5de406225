// SPDX-License-Identifier: Apache-2.0
// Checks a backend against known answers before it serves.
#ifndef PHASOR_KERNELS_SELF_TEST_H_
#define PHASOR_KERNELS_SELF_TEST_H_

#include "absl/status/status.h"
#include "kernels/backend/backend.h"

namespace phasor {

// Encodes and rotates a few values and compares the bytes with those of kNumericsVersion. INTERNAL
// if they differ, as on a broken processor or with a miscompiled kernel. Otherwise the status of
// Run.
absl::Status SelfTest(Backend& backend);

}  // namespace phasor

#endif  // PHASOR_KERNELS_SELF_TEST_H_
