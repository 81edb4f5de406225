// SPDX-License-Identifier: Apache-2.0
// Makes a backend by its name. The only place that knows them all.
#ifndef PHASOR_KERNELS_BACKENDS_H_
#define PHASOR_KERNELS_BACKENDS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend/backend.h"

namespace phasor {

struct BackendOptions {
  // "cpu"; "cuda", which gives to the CPU what the device does not do; "auto": where there is a
  // device, "cuda" that also gives to the CPU what is done sooner there, by rates that making it
  // measures, else "cpu"; "reference" (the scalar definition, slow; for tests).
  std::string name = "auto";
  // Threads a job may use, the caller's included. 0: one per core; 1 starts none.
  int threads = 0;
  // Whether a device that was lost is tried again, in a fresh context. Not where others in this
  // process use the device: their context ends too.
  bool retry_device = false;
};

// NOT_FOUND: unknown name. FAILED_PRECONDITION: known, but this host lacks it.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKENDS_H_
