// SPDX-License-Identifier: Apache-2.0
// Makes a backend by its name. Only backends.cc knows all backends.
#ifndef PHASOR_KERNELS_BACKENDS_H_
#define PHASOR_KERNELS_BACKENDS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend/backend.h"

namespace phasor {

// How to make a backend.
struct BackendOptions {
  // One of
  // - "cpu";
  // - "cuda": the CPU does only what is too small for the device, not supported or failed there;
  // - "auto": if there is a device, "cuda" for tensors in its memory, and the CPU for all others,
  //   because the way to the device takes longer than the CPU does; else "cpu";
  // - "reference": the scalar definition, slow, for tests.
  std::string name = "auto";
  // Threads that a job may use, including the caller's. 0: one per core. 1: no threads are started.
  int threads = 0;
  // Whether a lost device is tried again in a fresh context. Do not set it if other code in this
  // process uses the device: their context ends too.
  bool retry_device = false;
};

// NOT_FOUND: unknown name. FAILED_PRECONDITION: this build or host has no such backend.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options);

}  // namespace phasor

#endif  // PHASOR_KERNELS_BACKENDS_H_
